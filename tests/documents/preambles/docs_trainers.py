"""Rows with answers, and with preferences; PPO of one batch."""

import functools

from trl.experimental import cpo, ppo

from tests.documents.material import ROLLOUT, rows, said, short_runs

short_runs(GRPO=ROLLOUT, Reward={})
ppo.PPOConfig = functools.partial(
    ppo.PPOConfig,
    use_cpu=True,
    bf16=False,
    report_to="none",
    save_strategy="no",
    total_episodes=4,
    num_ppo_epochs=1,
    num_sample_generations=0,
)
cpo.CPOConfig = functools.partial(
    cpo.CPOConfig,
    use_cpu=True,
    bf16=False,
    report_to="none",
    save_strategy="no",
    max_steps=1,
    per_device_train_batch_size=2,
)
dataset = rows()


preferences = dataset.map(lambda row: {"chosen": said(row["answer"]), "rejected": said("A dog.")})
