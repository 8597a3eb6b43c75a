"""PPO on handwritten digits: TRL's stock PPOTrainer, images and a verifiable reward, on a CPU.

`python -m examples.ppo_digits --seed 0` takes a few minutes and needs TRL <= 1.12 (the extra `ppo`).
"""

import argparse
import sys
import warnings
from pathlib import Path

import datasets
import torch
import transformers
from peft import get_peft_model

from hf_vlm_rl import AutoVLMPolicy, RewardFunctionModel, shared_critic
from hf_vlm_rl.compat import require_ppo

if not __package__:  # `python examples/ppo_digits.py`: as `python -m examples.ppo_digits` from the checkout
    sys.path[0], __package__ = str(Path(__file__).resolve().parents[1]), "examples"

from .demo_digits.data import load_splits
from .demo_digits.evaluate import accuracy, answers, are_right, gain
from .demo_digits.model import build_checkpoint
from .demo_digits.train import CPU, exact_answer_reward, warm_up

require_ppo()
from trl.experimental.ppo import PPOConfig, PPOTrainer  # noqa: E402

ROWS = {"per_device_train_batch_size": 128, "local_rollout_forward_batch_size": 128, "num_mini_batches": 2}
ANSWERS = {"response_length": 2, "stop_token": "eos", "num_sample_generations": 0, "kl_coef": 0.0}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("outputs/ppo_digits"), help="output directory")
parser.add_argument("--seed", type=int, default=0, help="of weights, split and trainings")
parser.add_argument("--episodes", type=int, default=3840, help="answers to sample")
options = parser.parse_args()
torch.set_num_threads(1)  # more gain nothing on a tiny model, and round differently
transformers.utils.logging.disable_progress_bar()
datasets.disable_progress_bars()
warnings.filterwarnings("ignore", category=FutureWarning)  # of TRL's own calls

# A small chat model that has seen 20 answers. Patches of 4 pixels give 16 tokens, enough for a ticket.
splits = load_splits(warm_up=20, held_out=500, seed=options.seed)
checkpoint = build_checkpoint(options.out / "checkpoint", options.seed, patch_size=4)
policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
warm_up(policy, splits["warm_up"], options.seed, options.out)
processing_class = policy.processing_class
before = are_right(answers(policy, processing_class, splits["held_out"]), splits["held_out"])

# Rows are ids that carry their image, and its answer for the reward function.
rows = splits["graded"].map(
    lambda row: processing_class.encode_prompt(row["prompt"], [row["image"]], answer=row["answer"]),
    remove_columns=splits["graded"].column_names,
)
transformers.set_seed(options.seed)
policy = get_peft_model(policy, policy.lora_config(r=16))
reward_model = RewardFunctionModel(exact_answer_reward, processing_class)
trainer = PPOTrainer(
    model=policy,
    ref_model=None,  # the policy with its adapter switched off
    reward_model=reward_model,
    value_model=shared_critic(policy, r=16),
    processing_class=processing_class,
    train_dataset=rows,
    callbacks=[reward_model.callback],
    args=PPOConfig(
        output_dir=str(options.out),
        gradient_accumulation_steps=1,
        seed=options.seed,
        total_episodes=options.episodes,
        learning_rate=3e-3,
        **CPU | ROWS | ANSWERS,
    ),
)
trainer.train()
after = are_right(answers(policy, processing_class, splits["held_out"]), splits["held_out"])
results = {"warm start": accuracy(before), "after PPO": accuracy(after), "gain": gain(before, after)}
for name, share in results.items():
    print(f"{name:10} {share['value']:6.1%}  [{share['low']:.1%}, {share['high']:.1%}]")
