"""What further tasks on the weights of `hf-vlm-rl demo brands` have in common."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOTrainer

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.cli.demo import downloads

from .stages import DEFAULT, Stages
from .train import improve, merged, quiet, warm_up


def taught(
    start: Path,
    told: Dataset,
    graded: Dataset,
    reward: Callable,
    seed: int,
    steps: int,
    out: Path,
    stages: Stages,
    **settings: Any,
) -> GRPOTrainer:
    """Train a checkpoint by SFT, and go on with GRPO.

    Args:
        start: A checkpoint whose projector speaks the decoder's language.
        told: Rows with `completion`, for SFT.
        graded: Rows for GRPO, 16 a step, which come once.
        reward: TRL reward function.
        seed: Of both trainings.
        steps: Of GRPO.
        out: Gets the checkpoint after SFT, `warm_start`, and the trainers' files.
        stages: Gets the times of both.
        **settings: Of GRPO, as for `improve`.

    Returns:
        The trainer after GRPO.
    """
    policy = AutoVLMPolicy.from_pretrained(start, dtype="float32")
    with stages.stage("warm start"):
        trainer = warm_up(policy, told, DEFAULT.warm_up_epochs, seed, out)
        policy = merged(trainer, out / "warm_start")
    with stages.stage("grpo"):
        return improve(policy, graded, reward, DEFAULT.prompts, seed, steps, out, **settings)


def arguments(description: str, out: Path, labelled: int, start: bool = True) -> argparse.ArgumentParser:
    """The command line of a task.

    Args:
        description: What the task's module says of itself.
        out: Where its files go, unless something else is given.
        labelled: Pictures that SFT is told about, likewise.
        start: Whether the task starts from a run of the first one.
    """
    parser = argparse.ArgumentParser(description=description)
    if start:
        parser.add_argument("--start", type=Path, required=True, help="warm start of a run of the first task")
    parser.add_argument("--out", type=Path, default=out, help="output directory")
    parser.add_argument("--downloads", type=Path, default=downloads(), help="directory of downloads")
    parser.add_argument("--seed", type=int, default=0, help="of pictures and trainings")
    parser.add_argument("--labelled", type=int, default=labelled, help="pictures whose answer SFT is told")
    parser.add_argument("--steps", type=int, default=40, help="GRPO steps of 16 pictures")
    parser.add_argument("--held_out", type=int, default=500, help="pictures of the measurement")
    return parser


def run_task(parser: argparse.ArgumentParser, run: Callable[..., dict]) -> dict:
    """Run a task with the given arguments; return its figures, which `--out` gets as a file."""
    given = vars(parser.parse_args())
    quiet(threads=1)
    given["out"].mkdir(parents=True, exist_ok=True)
    given["cache"] = given.pop("downloads").absolute()
    figures = run(**given)
    (given["out"] / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    return figures


def in_words(changed: dict) -> str:
    """What `measure.change` returned: before, after, and the difference with its interval."""
    before, after, gain = (changed[each] for each in ("before", "after", "gain"))
    interval = f"[{gain['low']:+.3f}, {gain['high']:+.3f}]"
    return f"{before['value']:.3f} -> {after['value']:.3f}, {gain['value']:+.3f} {interval}"
