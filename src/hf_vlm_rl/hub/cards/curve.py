"""The learning curve of a run, from the trainer's log."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .facts import Curve

FILE = "assets/learning_curve.png"


def learning_curve(log_history: Sequence[Mapping[str, Any]], metrics: Iterable[str]) -> Curve | None:
    """The first of some metrics that was logged.

    Returns:
        None if none was logged at two steps or more.
    """
    for metric in metrics:
        points = {
            int(log["step"]): float(log[metric]) for log in log_history if metric in log and "step" in log
        }
        if len(points) > 1:
            return Curve(metric, tuple(sorted(points.items())))
    return None


def draw(curve: Curve, path: Path) -> bool:
    """Draw a curve as PNG.

    Returns:
        False if matplotlib is not installed: nothing was drawn.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    # Without pyplot: neither a display nor anybody's current figure is touched.
    figure = Figure(figsize=(6, 3), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    steps, values = zip(*curve.points, strict=True)
    axes.plot(steps, values, marker="o" if len(steps) < 20 else None, markersize=3)
    axes.set_xlabel("step")
    axes.set_ylabel(curve.metric)
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    return True
