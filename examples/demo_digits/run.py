"""Warm a tiny InternVL up on 20 handwritten digits, then improve it with stock TRL GRPO + LoRA.

`hf-vlm-rl demo` needs a CPU, no network and no download.
"""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import datasets
import torch
import transformers

from hf_vlm_rl import AutoVLMPolicy

from .data import load_splits
from .evaluate import accuracy, answers, are_right, gain
from .model import build_checkpoint
from .report import draw_answers, draw_learning_curve, rewards, write_figures
from .train import improve, warm_up


def run(seed: int, steps: int, directory: Path) -> dict:
    """Do both phases once; write checkpoints, adapter and pictures; return the figures.

    Args:
        seed: Of the first weights, the split of the scans, and both trainings.
        steps: GRPO optimizer steps.
        directory: Gets `checkpoint`, `warm_start`, `adapter` and `answers.png`.

    Returns:
        Accuracies (shares, 0 to 1), reward curve and wall times (seconds) for `figures.json`.
    """
    started = time.perf_counter()
    splits = load_splits(warm_up=20, held_out=500, seed=seed)
    held_out = splits["held_out"]

    checkpoint = build_checkpoint(directory / "checkpoint", seed)
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    warm_up(policy, splits["warm_up"], seed, directory)
    policy.save_pretrained(directory / "warm_start")
    policy.processing_class.save_pretrained(directory / "warm_start")
    warmed = time.perf_counter()

    policy = AutoVLMPolicy.from_pretrained(directory / "warm_start", dtype="float32")
    before = answers(policy, policy.processing_class, held_out)
    trainer = improve(policy, splits["graded"], seed, steps, directory)
    trainer.model.save_pretrained(directory / "adapter")
    after = answers(trainer.model, policy.processing_class, held_out)

    draw_answers(held_out, before, after, directory / "answers.png")
    right_before, right_after = are_right(before, held_out), are_right(after, held_out)
    return {
        "seed": seed,
        "images": {name: len(split) for name, split in splits.items()},
        "before": accuracy(right_before),
        "after": accuracy(right_after),
        "gain": gain(right_before, right_after),
        "seconds": {"warm_up": warmed - started, "grpo": time.perf_counter() - warmed},
        "rewards": rewards(trainer.state.log_history),
    }


def summary(figures: dict) -> str:
    """Say in four lines what one run measured."""
    images, minutes = figures["images"], sum(figures["seconds"].values()) / 60
    rows = {
        f"warm start on {images['warm_up']} images": figures["before"],
        f"after GRPO on {images['graded']} images": figures["after"],
        "gain": figures["gain"],
    }
    head = f"seed {figures['seed']}: accuracy on {images['held_out']} held-out images [95 %]"
    table = [
        f"  {name:28} {row['value']:6.1%}  [{row['low']:.1%}, {row['high']:.1%}]"
        for name, row in rows.items()
    ]
    return "\n".join([head, *table, f"  {minutes:.1f} minutes"])


def run_seeds(seeds: Sequence[int], steps: int, out: Path, threads: int) -> None:
    """Run every seed, print and write the figures.

    Args:
        seeds: One run each.
        steps: As for `run`.
        out: Gets what `run` writes (with several seeds in a folder each), the curves and the figures.
        threads: CPU threads of torch.
    """
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    # Set by TRL's own defaults, whatever a user passes.
    warnings.filterwarnings("ignore", message="`(is_)?gradient_checkpointing` is deprecated")

    runs = []
    for seed in seeds:
        directory = out / f"seed-{seed}" if len(seeds) > 1 else out
        runs.append(run(seed, steps, directory))
        print(summary(runs[-1]), flush=True)
    draw_learning_curve(runs, out / "learning_curve.png")
    write_figures(runs, out / "figures.json")
    print(f"pictures, figures and adapter: {out}")
