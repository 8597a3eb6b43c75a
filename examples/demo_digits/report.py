"""Pictures and the figures file of finished runs."""

import json
from pathlib import Path

import matplotlib
import numpy as np
from datasets import Dataset

matplotlib.use("Agg")
from matplotlib import pyplot as plt

GOOD, BAD, INK, PALE = "#1b7f4d", "#c0392b", "#222222", "#9a9a9a"


def rewards(log_history: list[dict]) -> list[tuple[int, float]]:
    """Pairs (step, mean reward of that step's sampled answers) from a trainer's `log_history`."""
    return [(entry["step"], entry["reward"]) for entry in log_history if "reward" in entry]


def write_figures(runs: list[dict], path: Path) -> None:
    """Write what was measured in every run as JSON."""
    path.write_text(json.dumps({"runs": runs}, indent=2) + "\n")


def draw_learning_curve(runs: list[dict], path: Path) -> None:
    """One panel per run: reward against GRPO step, and held-out accuracy before and after."""
    figure, panels = plt.subplots(
        1, len(runs), figsize=(1.6 + 4.8 * len(runs), 3.8), sharey=True, squeeze=False
    )
    for panel, run in zip(panels[0], runs, strict=True):
        _draw_run(panel, run)
    panels[0][0].set_ylabel("share of right answers")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_run(panel, run: dict) -> None:
    """Fill one panel of the learning curve."""
    steps, values = np.array(run["rewards"]).T  # (points,), (points,)
    width = min(5, len(values))
    smooth = np.convolve(values, np.ones(width) / width, mode="valid")
    centres = np.convolve(steps, np.ones(width) / width, mode="valid")
    panel.plot(steps, values, color="#9db8d9", lw=1, label="reward of sampled answers")
    panel.plot(centres, smooth, color="#2b5c9e", lw=2, label=f"the same, mean of {width} points")
    for name, colour in (("before", BAD), ("after", GOOD)):
        share = run[name]["value"]
        panel.axhspan(run[name]["low"], run[name]["high"], color=colour, alpha=0.12, lw=0)
        label = f"held-out accuracy {name}: {share:.1%}"
        panel.axhline(share, color=colour, lw=1.5, ls="--", label=label)
    panel.set(xlabel="GRPO step", xlim=(0, steps[-1]), ylim=(0, 1))
    panel.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    panel.set_title(f"seed {run['seed']}", loc="left", fontsize=10, color=INK)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(loc="lower right", fontsize=8, frameon=False)


def draw_answers(
    dataset: Dataset, before: list[str], after: list[str], path: Path, columns: int = 12
) -> None:
    """Draw the first held-out images, three rows of them, with the answers before and after.

    Args:
        dataset: Held-out rows, columns `image` and `answer`.
        before: Answers of the warm start, one per row.
        after: Answers after GRPO, one per row.
        path: PNG to write.
        columns: Images side by side.
    """
    figure, panels = plt.subplots(3, columns, figsize=(columns * 0.95, 4.3))
    for panel, row, old, new in zip(panels.flat, dataset, before, after, strict=False):
        panel.imshow(row["image"], interpolation="nearest")
        panel.set_axis_off()
        for x, text in ((0.22, old), (0.78, new)):
            colour = GOOD if text == row["answer"] else BAD
            panel.text(x, -0.2, text, color=colour, ha="center", fontsize=12, transform=panel.transAxes)
        panel.text(0.5, -0.2, "→", color=PALE, ha="center", fontsize=10, transform=panel.transAxes)
    figure.suptitle(
        "Held-out images: answer before → after GRPO (green: right, red: wrong)",
        x=0.02,
        ha="left",
        fontsize=11,
        color=INK,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(path, dpi=150)
    plt.close(figure)
