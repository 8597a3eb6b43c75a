"""Evaluation, with a last batch that is smaller than the others."""

import math

import pytest
from datasets import Dataset

from tests.trainers.runs import TWO, dpo, grpo, mixture, preferences

pytestmark = pytest.mark.trl

STEPS = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": 2}


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_grpo_evaluates_three_prompts_in_batches_of_two(beta, family, policy_for, tmp_path):
    policy = policy_for(family)
    seen = []

    def reward(completion_ids, trainer_state, **columns):
        seen.append(len(completion_ids))
        return [float(sum(ids) % 7) for ids in completion_ids]

    options = {"per_device_eval_batch_size": 4, "beta": beta, "reward": reward, **STEPS}
    rows = mixture(family)
    trainer = grpo(policy, rows, tmp_path, eval_rows=rows, peft=policy.lora_config(r=4), **options)
    trainer.train()
    losses = [log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log]
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)
    # A rollout of six; then per evaluation four and two.
    assert seen == [6, 4, 2, 4, 2]


@pytest.mark.parametrize("family", TWO)
def test_evaluation_does_not_change_the_run(family, policy_for, tmp_path):
    policy = policy_for(family)
    rows = mixture(family)
    trainer = grpo(
        policy, rows, tmp_path, eval_rows=rows, peft=policy.lora_config(r=4), per_device_eval_batch_size=4
    )
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    metrics = trainer.evaluate()
    assert metrics["eval_entropy"] > 0
    assert all(value.equal(before[name]) for name, value in policy.state_dict().items())


@pytest.mark.parametrize("family", TWO)
def test_dpo_evaluates_with_a_last_batch_of_one(family, policy_for, tmp_path):
    policy = policy_for(family)
    rows = preferences(family)
    trainer = dpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), per_device_eval_batch_size=2)
    metrics = trainer.evaluate(Dataset.from_list(rows))
    assert metrics["eval_loss"] == pytest.approx(math.log(2), abs=1e-5)
