"""Charts of 20 kinds, drawn by matplotlib from random values, in random colours and places."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import hsv_to_rgb
from matplotlib.figure import Figure
from PIL import Image

from .pictures import IMAGE_SIZE

DOTS_PER_INCH = 100  # what widths of lines and sizes of letters refer to
COLOUR_MAPS = ("viridis", "plasma", "Blues", "Greens", "coolwarm", "YlOrRd", "cividis", "gray")

Axes = Any  # matplotlib's, plain or polar
Rng = np.random.Generator


def _ink(rng: Rng) -> np.ndarray:
    return hsv_to_rgb([rng.uniform(), rng.uniform(0.4, 1), rng.uniform(0.2, 0.9)])


def _heights(rng: Rng) -> np.ndarray:
    """Four to nine positive values, on a scale of 1 to 1,000."""
    return rng.uniform(0.15, 1, rng.integers(4, 10)) * 10 ** rng.uniform(0, 3)


def _years(rng: Rng, number: int) -> np.ndarray:
    return np.arange(number) + rng.integers(0, 2020)


def _walk(rng: Rng) -> np.ndarray:
    """12 to 17 positive values, each near the one before."""
    walk = np.cumsum(rng.normal(0, 1, rng.integers(12, 18)))
    return walk - walk.min() + 0.5


def _samples(rng: Rng) -> list[np.ndarray]:
    """40 values of each of three to six groups."""
    return [rng.normal(rng.uniform(0, 3), rng.uniform(0.5, 1.5), 40) for _ in range(int(rng.integers(3, 7)))]


def _bars(axes: Axes, rng: Rng) -> None:
    heights = _heights(rng)
    axes.bar(_years(rng, len(heights)), heights, color=_ink(rng), width=rng.uniform(0.5, 0.95))


def _horizontal_bars(axes: Axes, rng: Rng) -> None:
    widths = _heights(rng)
    axes.barh(_years(rng, len(widths)), widths, color=_ink(rng), height=rng.uniform(0.5, 0.95))


def _stacked_bars(axes: Axes, rng: Rng) -> None:
    columns, width = int(rng.integers(4, 10)), rng.uniform(0.5, 0.95)
    years, top = _years(rng, columns), np.zeros(columns)
    for _ in range(int(rng.integers(3, 5))):
        heights = rng.uniform(0.2, 1, columns)
        axes.bar(years, heights, bottom=top, color=_ink(rng), width=width)
        top += heights


def _line(axes: Axes, rng: Rng) -> None:
    for _ in range(int(rng.integers(1, 4))):
        axes.plot(_walk(rng), color=_ink(rng), linewidth=rng.uniform(0.8, 2.2))


def _area(axes: Axes, rng: Rng) -> None:
    walk = _walk(rng)
    axes.fill_between(range(len(walk)), walk, color=_ink(rng))
    axes.set_ylim(bottom=0)


def _steps(axes: Axes, rng: Rng) -> None:
    walk = _walk(rng)
    axes.step(range(len(walk)), walk, color=_ink(rng), linewidth=rng.uniform(0.8, 2.2))


def _stems(axes: Axes, rng: Rng) -> None:
    ink = _ink(rng)
    stems = axes.stem(_walk(rng), basefmt=" ")
    stems.markerline.set(color=ink, markersize=rng.uniform(1.5, 3))
    stems.stemlines.set(color=ink, linewidth=0.8)


def _error_bars(axes: Axes, rng: Rng) -> None:
    heights = _heights(rng)
    errors = heights.max() * rng.uniform(0.08, 0.3, len(heights))
    look = {"fmt": "o", "markersize": 2, "linewidth": 0.8, "capsize": 2}
    axes.errorbar(_years(rng, len(heights)), heights, yerr=errors, color=_ink(rng), **look)


def _scatter(axes: Axes, rng: Rng) -> None:
    number = int(rng.integers(20, 70))
    across = rng.normal(0, 1, number)
    up = across * rng.uniform(-1, 1) + rng.normal(0, 0.6, number)
    axes.scatter(across, up, color=_ink(rng), s=rng.uniform(2, 8))


def _bubbles(axes: Axes, rng: Rng) -> None:
    number = int(rng.integers(8, 18))
    colours = [_ink(rng) for _ in range(number)] if rng.random() < 0.5 else _ink(rng)
    axes.scatter(*rng.uniform(0, 1, (2, number)), s=rng.uniform(5, 220, number), color=colours, alpha=0.6)


def _pie(axes: Axes, rng: Rng, **wedges: float) -> None:
    shares = _heights(rng)[:6]
    colours = [_ink(rng) for _ in shares]
    axes.pie(shares, colors=colours, startangle=rng.uniform(0, 360), wedgeprops=wedges)


def _donut(axes: Axes, rng: Rng) -> None:
    _pie(axes, rng, width=rng.uniform(0.3, 0.55))


def _histogram(axes: Axes, rng: Rng) -> None:
    values = np.concatenate([rng.normal(0, 1, 300), rng.normal(rng.uniform(-3, 3), 0.7, 200)])
    axes.hist(values, bins=int(rng.integers(15, 30)), color=_ink(rng))


def _boxes(axes: Axes, rng: Rng) -> None:
    filled = {"facecolor": _ink(rng), "linewidth": 0.5}
    axes.boxplot(
        _samples(rng), patch_artist=True, boxprops=filled, flierprops={"markersize": 1.5}, widths=0.6
    )


def _violins(axes: Axes, rng: Rng) -> None:
    ink = _ink(rng)
    for body in axes.violinplot(_samples(rng), widths=0.9)["bodies"]:
        body.set(facecolor=ink, alpha=0.8)


def _heat_map(axes: Axes, rng: Rng) -> None:
    axes.imshow(rng.uniform(0, 1, rng.integers(4, 10, 2)), cmap=rng.choice(COLOUR_MAPS), aspect="auto")


def _contours(axes: Axes, rng: Rng) -> None:
    across, up = np.meshgrid(*[np.linspace(-2, 2, 30)] * 2)
    height = np.zeros_like(across)
    for _ in range(4):
        x, y = rng.uniform(-1.5, 1.5, 2)
        bell = np.exp(-((across - x) ** 2 + (up - y) ** 2) / rng.uniform(0.3, 1.5))
        height += rng.uniform(-1, 1) * bell
    axes.contour(across, up, height, int(rng.integers(6, 12)), cmap=rng.choice(COLOUR_MAPS), linewidths=0.8)


def _arrows(axes: Axes, rng: Rng) -> None:
    across, up = np.meshgrid(np.arange(8), np.arange(8))
    turns, (right, upwards) = rng.uniform(0.2, 0.6), rng.uniform(0, 6, 2)
    axes.quiver(across, up, np.cos(turns * across + right), np.sin(turns * up + upwards), color=_ink(rng))


def _radar(axes: Axes, rng: Rng) -> None:
    heights, ink = _heights(rng), _ink(rng)
    angles = np.linspace(0, 2 * np.pi, len(heights) + 1)
    axes.plot(angles, [*heights, heights[0]], color=ink, linewidth=rng.uniform(0.8, 2.2))
    axes.fill(angles, [*heights, heights[0]], color=ink, alpha=0.3)


def _polar_bars(axes: Axes, rng: Rng) -> None:
    heights = _heights(rng)
    angles = np.linspace(0, 2 * np.pi, len(heights), endpoint=False)
    width = 2 * np.pi / len(heights) * rng.uniform(0.5, 0.95)
    axes.bar(angles, heights, width=width, color=[_ink(rng) for _ in heights])


KINDS: dict[str, Callable[[Axes, Rng], None]] = {
    "bar chart": _bars,
    "horizontal bars": _horizontal_bars,
    "stacked bars": _stacked_bars,
    "line chart": _line,
    "area chart": _area,
    "step chart": _steps,
    "stem plot": _stems,
    "error bars": _error_bars,
    "scatter plot": _scatter,
    "bubble chart": _bubbles,
    "pie chart": _pie,
    "donut chart": _donut,
    "histogram": _histogram,
    "box plot": _boxes,
    "violin plot": _violins,
    "heat map": _heat_map,
    "contour plot": _contours,
    "vector field": _arrows,
    "radar chart": _radar,
    "polar bars": _polar_bars,
}
POLAR = ("radar chart", "polar bars")
WITHOUT_GRID = ("pie chart", "donut chart", "heat map", *POLAR)


def chart(kind: str, rng: Rng) -> Image.Image:
    """An RGB image, `IMAGE_SIZE` x `IMAGE_SIZE`.

    Args:
        kind: One of `KINDS`.
        rng: Decides the values, the colours, and where the axes are.
    """
    side = IMAGE_SIZE / DOTS_PER_INCH
    figure = Figure(figsize=(side, side), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    paper = hsv_to_rgb([rng.uniform(), rng.uniform(0, 0.12), rng.uniform(0.88, 1)])
    left, bottom = rng.uniform(0.1, 0.22, 2)
    axes = figure.add_axes((left, bottom, 0.95 - left, 0.93 - bottom), facecolor=paper, polar=kind in POLAR)
    KINDS[kind](axes, rng)
    axes.tick_params(labelsize=4, length=1.5, width=0.4, pad=-3 if kind in POLAR else 1)
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)
    if kind not in WITHOUT_GRID and rng.random() < 0.4:
        axes.grid(linewidth=0.3, alpha=0.5)
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor=paper)
    return Image.open(file).convert("RGB")
