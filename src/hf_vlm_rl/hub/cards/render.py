"""A card's text, from its data and the one template, and the picture in it."""

import functools
import json
from pathlib import Path
from typing import Any

import jinja2

from .card import PLACEHOLDER_ID, AdapterCardData
from .facts import Curve
from .merge import BEGIN, END, write
from .methods import METHODS

CURVE = "assets/learning_curve.png"


def render(card: AdapterCardData, curve_drawn: bool = False) -> str:
    """The card as Markdown with metadata.

    Raises:
        ValueError: If `card.facts` is not filled, or the metadata is not valid.
    """
    facts = card.filled()
    metadata = card.metadata()
    body = _template().render(
        card=card,
        facts=facts,
        methods=METHODS,
        repo_id=card.repo_id or PLACEHOLDER_ID,
        metadata=metadata,
        curve_file=CURVE if curve_drawn else None,
        begin=BEGIN,
        end=END,
    )
    return write(metadata, body)


def draw(curve: Curve, path: Path) -> bool:
    """Draw a curve as PNG; False if matplotlib is not installed and nothing was drawn."""
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


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "cell": _cell,
        "count": "{:,}".format,
        "number": _number,
        "quoted": functools.partial(json.dumps, ensure_ascii=False),
    }
    return environment.get_template("card.md.jinja")


def _number(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_number, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: Any) -> str:
    """Text that stays inside its cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ")
