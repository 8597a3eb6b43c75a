"""GRPO with a tool that returns images: a tiny model learns to zoom into a sheet of handwritten digits.

`python -m examples.grpo_zoom --seed 0` needs TRL 1.16 or newer and some minutes of a CPU; nothing is
downloaded. The sheet's thumbnail has 4 x 4 pixels for a digit, the tool shows a cell as it is. The same
warmed-up model is trained a second time without the tool, on the same rows for as many steps.
"""

import argparse
import copy
import json
import sys
import warnings
from pathlib import Path

import datasets
import torch
import transformers
from trl import GRPOConfig, GRPOTrainer

if not __package__:  # `python examples/grpo_zoom.py`: as `python -m examples.grpo_zoom` from the checkout
    sys.path[0], __package__ = str(Path(__file__).resolve().parents[1]), "examples"

from .demo_digits.train import CPU
from .zoom_sheets.data import Sheet, load_splits
from .zoom_sheets.model import build_policy, warm_up

ROWS = {"per_device_train_batch_size": 128, "per_device_eval_batch_size": 100, "num_iterations": 2}
ROLLOUTS = {"num_generations": 8, "num_generations_eval": 1, "steps_per_generation": 2, "logging_steps": 8}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("outputs/zoom"), help="output directory")
parser.add_argument("--seed", type=int, default=0, help="of weights, split and trainings")
parser.add_argument("--warm_up_steps", type=int, default=800, help="supervised steps before")
parser.add_argument("--steps", type=int, default=60, help="GRPO steps of 128 answers each")
parser.add_argument("--held_out", type=int, default=300, help="sheets of scans that no training sees")
options = parser.parse_args()
torch.set_num_threads(1)  # more gain nothing on a tiny model, and round differently
transformers.utils.logging.disable_progress_bar()
datasets.disable_progress_bars()
warnings.filterwarnings("ignore", category=FutureWarning)  # of TRL's own calls


def is_right(completions, answer, **_):
    """1.0 where the last turn is the digit and nothing else; the last may be the tool's, an image."""
    pairs = zip((messages[-1]["content"] for messages in completions), answer, strict=True)
    return [float(isinstance(said, str) and said.strip() == digit) for said, digit in pairs]


splits = load_splits({"warm_up": 1500, "graded": 1500, "held_out": options.held_out}, options.seed)
warmed = build_policy(options.out / "checkpoint", options.seed)
warm_up(warmed, splits["warm_up"], options.warm_up_steps, options.seed)

results = {}
for name, tools in {"with the tool": {"environment_factory": Sheet}, "without": {}}.items():
    transformers.set_seed(options.seed)
    policy = copy.deepcopy(warmed)
    trainer = GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=is_right,
        train_dataset=splits["graded"],
        eval_dataset=splits["held_out"],
        peft_config=policy.lora_config(r=16),
        args=GRPOConfig(
            output_dir=str(options.out / name),
            seed=options.seed,
            max_steps=options.steps,
            max_completion_length=60,  # a call, the image and a digit
            max_tool_calling_iterations=1,
            learning_rate=2e-3,
            warmup_steps=8,
            disable_tqdm=True,
            **CPU | ROWS | ROLLOUTS,
        ),
        **tools,
    )
    before, _, after = trainer.evaluate(), trainer.train(), trainer.evaluate()
    results[name] = {"before": before["eval_reward"], "after": after["eval_reward"]}
    print(f"{name:14} {before['eval_reward']:6.1%} -> {after['eval_reward']:6.1%}", flush=True)
(options.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
