"""PPO on handwritten digits: a warm start on 20 images, then TRL's stock PPOTrainer with a
verifiable reward, on a CPU in a few minutes.

`python -m examples.ppo_digits --seed 0` needs TRL <= 1.12 (`pip install 'hf-vlm-rl[ppo]'`).
"""

import argparse
import warnings
from pathlib import Path

import datasets
import transformers
from peft import get_peft_model

from hf_vlm_rl import AutoVLMPolicy, AutoVLMValueModel, RewardFunctionModel
from hf_vlm_rl.compat import require_ppo

from .demo_digits.data import load_splits
from .demo_digits.evaluate import accuracy, answers, are_right, gain
from .demo_digits.model import build_checkpoint
from .demo_digits.train import CPU, exact_answer_reward, warm_up

require_ppo()
from trl.experimental.ppo import PPOConfig, PPOTrainer  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("outputs/ppo_digits"), help="output directory")
parser.add_argument("--seed", type=int, default=0, help="of the weights, the split and the trainings")
parser.add_argument("--episodes", type=int, default=3840, help="sampled answers")
options = parser.parse_args()
transformers.utils.logging.disable_progress_bar()
datasets.disable_progress_bars()
warnings.filterwarnings("ignore", category=FutureWarning)  # TRL's own calls

# 1. A small chat model that has seen the answers of 20 images, saved as any checkpoint is.
# A ticket fits into an image of 10 tokens or more: patches of 4 pixels give 16.
splits = load_splits(warm_up=20, held_out=500, seed=options.seed)
directory = build_checkpoint(options.out / "checkpoint", options.seed, patch_size=4)
policy = AutoVLMPolicy.from_pretrained(directory, dtype="float32")
warm_up(policy, splits["warm_up"], options.seed, options.out)
for part in (policy, policy.processing_class):
    part.save_pretrained(options.out / "warm_start")

# 2. Policy, value model and reward; rows are ids that carry their image and its answer.
policy = AutoVLMPolicy.from_pretrained(options.out / "warm_start", dtype="float32")
processing_class = policy.processing_class
value_model = AutoVLMValueModel.from_pretrained(
    options.out / "warm_start", dtype="float32", processing_class=processing_class
)
reward_model = RewardFunctionModel(exact_answer_reward, processing_class)
rows = splits["graded"].map(
    lambda row: processing_class.encode_prompt(row["prompt"], [row["image"]], answer=row["answer"]),
    remove_columns=splits["graded"].column_names,
)
before = are_right(answers(policy, processing_class, splits["held_out"]), splits["held_out"])

# 3. TRL's trainer, as it is.
trainer = PPOTrainer(
    model=policy,
    ref_model=None,  # the policy with its adapter switched off
    reward_model=reward_model,
    value_model=get_peft_model(value_model, value_model.lora_config(r=16)),
    processing_class=processing_class,
    train_dataset=rows,
    peft_config=policy.lora_config(r=16),
    callbacks=[reward_model.callback],
    args=PPOConfig(
        output_dir=str(options.out),
        seed=options.seed,
        total_episodes=options.episodes,
        per_device_train_batch_size=64,
        gradient_accumulation_steps=2,
        num_mini_batches=2,
        local_rollout_forward_batch_size=128,
        learning_rate=3e-3,
        response_length=2,  # a digit and the end of the turn
        stop_token="eos",
        kl_coef=0.0,
        num_sample_generations=0,
        **CPU,
    ),
)
trainer.train()
after = are_right(answers(trainer.policy_model, processing_class, splits["held_out"]), splits["held_out"])
for name, figures in (
    ("warm start", accuracy(before)),
    ("after PPO", accuracy(after)),
    ("gain", gain(before, after)),
):
    print(f"{name:10} {figures['value']:6.1%}  [{figures['low']:.1%}, {figures['high']:.1%}]")
