"""Pictures and the figures file of finished runs."""

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from datasets import Dataset

from ..demo_digits.report import BAD, GOOD, INK

matplotlib.use("Agg")
from matplotlib import pyplot as plt

SHORTEST_CURVE = 5  # points; the curve is smoothed over as many


def curves(log_history: list[dict]) -> dict[str, list[float]]:
    """What GRPO logged at each of its steps.

    Returns:
        "reward": mean of the step's sampled answers; "silent": share of the pictures whose answers all got
        the same reward, and gave no gradient; "entropy": of the sampled tokens, in nats.
    """
    entries = [entry for entry in log_history if "reward" in entry]
    keys = {"reward": "reward", "silent": "frac_reward_zero_std", "entropy": "entropy"}
    return {name: [float(entry[key]) for entry in entries] for name, key in keys.items()}


def write_figures(runs: list[dict], controls: list[dict], path: Path) -> None:
    """Write what was measured in every run, and of every control, as JSON."""
    path.write_text(json.dumps({"runs": runs, "controls": controls}, indent=2) + "\n")


def draw_learning_curve(runs: list[dict], path: Path) -> None:
    """One panel per run: reward and silent groups by step, and held-out accuracy before and after."""
    size = (1.6 + 4.8 * len(runs), 3.8)
    figure, panels = plt.subplots(1, len(runs), figsize=size, sharey=True, squeeze=False)
    for panel, run in zip(panels[0], runs, strict=True):
        _draw_run(panel, run)
    panels[0][0].set_ylabel("share")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_run(panel, run: dict) -> None:
    """Fill one panel of the learning curve."""
    lines = {"reward": ("reward of sampled answers", "#2b5c9e"), "silent": ("silent groups", "#b0872a")}
    for name, (label, colour) in lines.items():
        values = np.array(run["curves"][name])
        width = min(SHORTEST_CURVE, len(values))
        smooth = np.convolve(values, np.ones(width) / width, mode="valid")
        panel.plot(np.arange(1, len(values) + 1), values, color=colour, lw=0.8, alpha=0.35)
        panel.plot(np.arange(len(smooth)) + (width + 1) / 2, smooth, color=colour, lw=2, label=label)
    for name, colour in (("before", BAD), ("after", GOOD)):
        share = run["held_out"][name]
        panel.axhspan(share["low"], share["high"], color=colour, alpha=0.12, lw=0)
        label = f"held-out accuracy {name}: {share['value']:.1%}"
        panel.axhline(share["value"], color=colour, lw=1.5, ls="--", label=label)
    panel.set(xlabel="GRPO step", ylim=(0, 1))
    panel.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    panel.set_title(f"seed {run['seed']}", loc="left", fontsize=10, color=INK)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(loc="lower right", fontsize=8, frameon=False)


def draw_answers(
    dataset: Dataset, before: Sequence[str], after: Sequence[str], path: Path, columns: int = 8
) -> None:
    """Draw the first pictures, four rows of them, with the answers before and after.

    Args:
        dataset: Rows with `image` and `answer`.
        before: Answers of the warm start, one per row.
        after: Answers after GRPO, one per row.
        path: PNG to write.
        columns: Pictures side by side.
    """
    figure, panels = plt.subplots(4, columns, figsize=(columns * 1.35, 7.4))
    for panel in panels.flat:
        panel.set_axis_off()
    for panel, row, *answers in zip(panels.flat, dataset, before, after, strict=False):
        panel.imshow(row["image"])
        for y, mark, text in ((-0.1, "before", answers[0]), (-0.24, "after", answers[1])):
            colour = GOOD if text == row["answer"] else BAD
            shown = text if len(text) < 16 else text[:14] + "…"
            place = {"ha": "left", "va": "center", "fontsize": 7.5, "transform": panel.transAxes}
            panel.text(0, y, f"{mark}: ", color=INK, **place)
            panel.text(0.36, y, shown, color=colour, **place)
    title = "Held-out pictures, answers before and after GRPO (green: right, red: wrong)"
    figure.suptitle(title, x=0.02, ha="left", fontsize=11, color=INK)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_confusion(
    brands: Sequence[str], answers: Sequence[str | None], references: Sequence[str], path: Path
) -> None:
    """Draw which brand was answered (column) for which (row), and in the last column no brand.

    Args:
        brands: All of them.
        answers: Per picture the brand that was named; None where none or several were.
        references: Per picture the right brand.
        path: PNG to write.
    """
    named = [*brands, None]
    counts = np.zeros((len(brands), len(named)), int)
    for answer, reference in zip(answers, references, strict=True):
        counts[brands.index(reference), named.index(answer)] += 1
    figure, panel = plt.subplots(figsize=(6.4, 5.8))
    panel.imshow(counts, cmap="Blues")
    panel.set_xticks(range(len(named)), [*brands, "none"], rotation=60, ha="right", fontsize=8)
    panel.set_yticks(range(len(brands)), brands, fontsize=8)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if count > counts.max() / 2 else INK
            panel.text(column, row, str(count), ha="center", va="center", fontsize=6.5, color=colour)
    panel.set(xlabel="answered after GRPO", ylabel="shown")
    panel.spines[:].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
