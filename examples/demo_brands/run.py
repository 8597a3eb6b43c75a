"""Brands on photographs: pretrained weights, a warm start on few labels, then stock GRPO with a reward."""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import datasets
import torch
import transformers

from hf_vlm_rl import AdapterCardData, AutoVLMPolicy, save_adapter

from .align import align
from .checkpoint import build_checkpoint
from .logos import BRANDS
from .measure import NAME, REWARD, accuracy, answers, change, compared, headroom, outlook, pass_at, silent
from .packages import LOGOS, PACKAGES, fetch
from .report import curves, draw_answers, draw_confusion, draw_learning_curve, write_figures
from .splits import QUESTION, brand_rows
from .train import improve, warm_up


@dataclass(frozen=True)
class Sizes:
    """How much of everything.

    Attributes:
        labelled: Pictures whose brand the warm start is told.
        alignment_epochs: Passes of the alignment over them.
        warm_up_epochs: Passes of supervised training over them.
        selection: Pictures on which to see, before GRPO, whether it can gain.
        prompts: Pictures of a GRPO step; none comes twice.
        held_out: Pictures of the final measurement.
    """

    labelled: int = 160
    alignment_epochs: int = 60
    warm_up_epochs: int = 3
    selection: int = 64
    prompts: int = 16
    held_out: int = 500


DEFAULT = Sizes()


class Stages:
    """Wall time and processor time, in seconds, of the stages of a run.

    Attributes:
        seconds: Stage to `{"wall": ..., "processor": ...}`.
    """

    def __init__(self):
        self.seconds: dict[str, dict[str, float]] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what is done inside."""
        wall, processor = time.perf_counter(), time.process_time()
        yield
        self.seconds[name] = {
            "wall": time.perf_counter() - wall,
            "processor": time.process_time() - processor,
        }


def run(seed: int, steps: int, directory: Path, cache: Path, sizes: Sizes) -> dict:
    """Do everything once; write checkpoints, adapter, card and pictures; return the figures.

    Args:
        seed: Of the projector's first weights, the pictures, and the trainings.
        steps: GRPO optimizer steps.
        directory: Gets `checkpoint`, `warm_start`, `adapter`, `answers.png` and `confusion.png`.
        cache: Directory of downloads.
        sizes: Of splits and stages.

    Returns:
        Accuracies (shares, 0 to 1), curves and times for `figures.json`.
    """
    stages = Stages()
    with stages.stage("data"):
        logos = fetch(LOGOS, cache)
        labelled = brand_rows(logos, sizes.labelled, "labelled", seed)
        graded = brand_rows(logos, sizes.prompts * steps, "graded", seed)
        selection = brand_rows(logos, sizes.selection, "selection", seed)
    with stages.stage("checkpoint"):
        checkpoint = build_checkpoint(directory / "checkpoint", cache, seed)
        policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    with stages.stage("alignment"):
        align(policy, labelled["image"], labelled["answer"], sizes.alignment_epochs, seed)
    with stages.stage("warm start"):
        trainer = warm_up(policy, labelled, sizes.warm_up_epochs, seed, directory)
        warmed = trainer.model.merge_and_unload()
        warmed.save_pretrained(directory / "warm_start")
        policy.processing_class.save_pretrained(directory / "warm_start")

    policy = AutoVLMPolicy.from_pretrained(directory / "warm_start", dtype="float32")
    with stages.stage("headroom"):
        sampled = headroom(policy, selection)
    print(f"Before GRPO, on {sizes.selection} selection pictures: {outlook(sampled)}", flush=True)
    with stages.stage("grpo"):
        trainer = improve(policy, graded, REWARD, sizes.prompts, seed, steps, directory)
    # Only now is the held-out split made: nothing above can have looked at it.
    with stages.stage("held out"):
        held_out = brand_rows(logos, sizes.held_out, "held_out", seed)
        with trainer.model.disable_adapter():
            before = accuracy(trainer.model, held_out)
        after = accuracy(trainer.model, held_out)

    texts = answers(before), answers(after)
    draw_answers(held_out, *texts, directory / "answers.png")
    named = [REWARD.parse_answer(text) for text in texts[1]]
    draw_confusion(BRANDS, named, held_out["answer"], directory / "confusion.png")
    compared(before, after).save_html(directory / "held_out.html")
    save_adapter(trainer, directory / "adapter", card=_card(before, after, sizes.labelled))
    return {
        "seed": seed,
        "pictures": {
            "labelled": sizes.labelled,
            "graded": len(graded),
            "selection": sizes.selection,
            "held_out": sizes.held_out,
        },
        "before_grpo": {"pass_at": pass_at(sampled), "silent": silent(sampled)},
        "held_out": change(before, after),
        "seconds": stages.seconds,
        "curves": curves(trainer.state.log_history),
    }


def _card(before, after, labelled: int) -> AdapterCardData:
    """What the adapter's card says."""
    return AdapterCardData(
        title="Brands on photographs",
        summary=f"Answers which of {len(BRANDS)} brands a picture shows: {', '.join(BRANDS)}.",
        prompt=QUESTION,
        data_notes=(
            "Logos of simple-icons (CC0; logos are trademarks of their owners) drawn on photographs of "
            "scikit-image. GRPO saw no label: its reward says whether an answer was right. The warm start "
            f"saw {labelled} labelled pictures."
        ),
        limits=["A demonstration: it knows no other brand, and never says that it sees none."],
        license="apache-2.0",
        language=["en"],
        evaluations=compared(before, after).evaluations(
            "Pictures with other photographs", metrics={NAME: "accuracy"}
        ),
    )


def summary(figures: dict) -> str:
    """Say in a few lines what one run measured."""
    pictures, held_out = figures["pictures"], figures["held_out"]
    minutes = sum(stage["wall"] for stage in figures["seconds"].values()) / 60
    rows = {
        f"warm start on {pictures['labelled']} pictures": held_out["before"],
        f"after GRPO on {pictures['graded']} pictures": held_out["after"],
        "gain": held_out["gain"],
    }
    head = f"seed {figures['seed']}: accuracy on {pictures['held_out']} held-out pictures [95 %]"
    table = [
        f"  {name:32} {row['value']:6.1%}  [{row['low']:.1%}, {row['high']:.1%}]"
        for name, row in rows.items()
    ]
    last = f"  McNemar's p {held_out['p_value']:.1g}; {minutes:.1f} minutes"
    return "\n".join([head, *table, last])


def run_seeds(
    seeds: Sequence[int], steps: int, out: Path, threads: int, cache: Path, sizes: Sizes = DEFAULT
) -> None:
    """Fetch the packages, run every seed, print and write the figures.

    Args:
        seeds: One run each.
        steps: As for `run`.
        out: Gets what `run` writes (with several seeds in a folder each), the curves and the figures.
        threads: CPU threads of torch.
        cache: Directory of downloads.
        sizes: Of splits and stages.
    """
    for package in PACKAGES:
        print(f"{package.name} {package.version}: {package.licence}", flush=True)
        fetch(package, cache)
    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    # Set by TRL's own defaults, whatever a user passes.
    warnings.filterwarnings("ignore", message="`(is_)?gradient_checkpointing` is deprecated")

    runs = []
    for seed in seeds:
        directory = out / f"seed-{seed}" if len(seeds) > 1 else out
        runs.append(run(seed, steps, directory, cache, sizes))
        print(summary(runs[-1]), flush=True)
        write_figures(runs, out / "figures.json")
    draw_learning_curve(runs, out / "learning_curve.png")
    print(f"pictures, figures and adapter: {out}")
