"""Does a row that taught teach again? `python -m benchmarks.silent_rows` asks it of the digits demo.

Stock GRPO as in the demo, with 60 % of its steps. After every 4 sampled batches, the policy of that moment
answers some rows 16 times each. The first 8 answers tell which of them teach (unequal rewards); the other 8,
then and later, how many of these are silent. What was measured is written to `--out` (JSON).
"""

import argparse
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from examples.demo_digits.data import load_splits
from examples.demo_digits.model import build_checkpoint
from examples.demo_digits.train import exact_answer_reward, improve, warm_up
from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.evaluation import evaluate

STEPS, BATCH = 168, 8  # optimizer steps: of the run, and of a sampled batch
ROWS, GROUP = 640, 8


class Moments(transformers.TrainerCallback):
    """Answers rows at some moments of a training: `rates` has, by step, (2, rows) shares of right ones."""

    def __init__(self, rows: datasets.Dataset):
        self.rows = rows
        self.rates: dict[int, NDArray[np.float64]] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Answer; the training goes on as if nobody had asked."""
        if state.global_step % (4 * BATCH):
            return
        result = evaluate(
            model,
            self.rows,
            exact_answer_reward,
            batch_size=64,
            num_generations=2 * GROUP,
            max_new_tokens=4,
            keep_rows=len(self.rows),
            seed=state.global_step,
            temperature=1.0,
            top_k=0,
        )
        rewards = [row.rewards["exact_answer_reward"] for row in result.rows]
        self.rates[state.global_step] = np.reshape(rewards, (-1, 2, GROUP)).mean(axis=2).T


def silent(rates: NDArray[np.float64]) -> float:
    """The share of rows whose answers are all right or all wrong."""
    return round(float(((rates == 0) | (rates == 1)).mean()), 3)


def pairs(rates: dict[int, NDArray[np.float64]]) -> list[dict]:
    """For each moment and each later one: how many rows are silent then, by what they did at first."""
    lines = []
    for first, (seen, _) in rates.items():
        kinds = {
            "any": np.full(seen.shape, True),
            "taught": (seen > 0) & (seen < 1),
            "right in 2 to 6 of 8": (seen >= 0.25) & (seen <= 0.75),
        }
        for second, (_, then) in rates.items():
            if second >= first:
                shares = {kind: silent(then[chosen]) for kind, chosen in kinds.items()}
                lines.append({"step": first, "batches later": (second - first) // BATCH, "silent": shares})
    return lines


def means(lines: list[dict]) -> list[dict]:
    """The mean over the moments, for each number of batches later."""
    table = []
    for later in sorted({line["batches later"] for line in lines}):
        shares = [line["silent"] for line in lines if line["batches later"] == later]
        mean = {kind: round(float(np.mean([share[kind] for share in shares])), 2) for kind in shares[0]}
        table.append({"batches later": later, "moments": len(shares), "silent": mean})
    return table


def main() -> None:
    """Train, answer, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("silent_rows.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", message="`(is_)?gradient_checkpointing` is deprecated")
    splits = load_splits(warm_up=20, held_out=500, seed=options.seed)
    with tempfile.TemporaryDirectory() as folder:
        policy = AutoVLMPolicy.from_pretrained(build_checkpoint(folder, options.seed), dtype="float32")
        warm_up(policy, splits["warm_up"], options.seed, Path(folder))
        moments = Moments(splits["graded"].select(range(ROWS)))
        improve(policy, splits["graded"], options.seed, STEPS, Path(folder), [moments])
    lines = pairs(moments.rates)
    for line in means(lines):
        print(line)
    command = f"python -m benchmarks.silent_rows --seed {options.seed}"
    result = {"command": command, "rows": ROWS, "means": means(lines), "pairs": lines}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
