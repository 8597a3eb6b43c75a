"""Evaluated rows as one picture."""

import base64
import io
import textwrap
import warnings
from pathlib import Path
from typing import Any

import PIL.Image

from .kept_rows import EvaluatedRow
from .result import EvaluationResult

WIDTH, LINES = 34, 6  # characters and lines of a completion


def save_png(result: EvaluationResult, path: str | Path, columns: int = 4, most: int = 24) -> None:
    """Draw the first rows that have an image: image, first completion, rewards.

    Args:
        result: With kept rows.
        path: File to write; PNG, or what matplotlib makes of another suffix.
        columns: Images side by side, > 0.
        most: Images drawn.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If no kept row has an image.
    """
    figures = _matplotlib()
    rows = [row for row in result.rows if row.images][:most]
    if not rows:
        raise ValueError(
            f"Got {len(result.rows)} kept rows, none with an image. Expected one to draw; save_html also "
            "shows rows of text."
        )
    columns = min(columns, len(rows))
    lines = -(-len(rows) // columns)
    figure = figures.Figure(figsize=(2.6 * columns, 3.4 * lines), layout="constrained")
    for panel in figure.subplots(lines, columns, squeeze=False).flat:
        panel.set_axis_off()
    for panel, row in zip(figure.axes, rows, strict=False):
        panel.imshow(_image(row.images[0]))
        below = {"fontsize": 7, "va": "top", "transform": panel.transAxes, "parse_math": False}
        panel.text(0, -0.03, _words(row), **below)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # drawn as a box
        figure.savefig(path, dpi=150)


def _matplotlib() -> Any:
    try:
        from matplotlib import figure
    except ImportError as error:
        raise ImportError(
            "save_png needs matplotlib, which is not installed: pip install 'hf-vlm-rl[demo]'. save_html "
            "needs nothing."
        ) from error
    return figure


def _image(url: str) -> PIL.Image.Image:
    return PIL.Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def _words(row: EvaluatedRow) -> str:
    text = "".join(char for char in row.completions[0] if char.isprintable() or char == "\n")
    said = textwrap.wrap(text, WIDTH, max_lines=LINES, placeholder=" ...") or ["(nothing)"]
    rewards = [f"{name}: {'-' if own[0] is None else f'{own[0]:.3g}'}" for name, own in row.rewards.items()]
    return "\n".join([*said, *rewards])
