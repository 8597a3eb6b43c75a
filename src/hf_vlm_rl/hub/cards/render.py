"""A card's text, from its data and the one template."""

import functools
import json
from pathlib import Path
from typing import Any

import jinja2

from ...evaluation.measurement import Evaluation
from .card import AdapterCardData
from .curve import FILE
from .merge import BEGIN, END, list_keys, write
from .methods import METHODS

TEMPLATE = "card.md.jinja"
PLACEHOLDER_ID = "user/adapter"


def render(card: AdapterCardData, curve_drawn: bool = False) -> str:
    """The card as Markdown with metadata.

    Args:
        card: With `facts` filled.
        curve_drawn: The learning curve is in the folder (`curve.FILE`).

    Raises:
        ValueError: If `card.facts` is not filled, or the metadata is not valid.
    """
    if card.facts is None:
        raise ValueError("Got a card without facts. Use save_adapter or push_adapter, which fill them.")
    metadata = card.metadata()
    body = _template().render(
        card=card,
        facts=card.facts,
        run=card.facts.run,
        adapter=card.facts.adapter,
        base=card.facts.base,
        method=METHODS[card.facts.run.method] if card.facts.run else None,
        repo_id=card.repo_id or PLACEHOLDER_ID,
        keys=list_keys(metadata),
        curve_file=FILE if curve_drawn else None,
        begin=BEGIN,
        end=END,
    )
    return write(metadata, body)


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
        "count": _count,
        "duration": _duration,
        "measured": _measured,
        "number": _number,
        "quoted": functools.partial(json.dumps, ensure_ascii=False),
        "share": _share,
    }
    return environment.get_template(TEMPLATE)


def _number(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_number, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _count(value: int) -> str:
    return f"{value:,}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _cell(text: Any) -> str:
    """Text that stays inside its cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def _measured(evaluation: Evaluation, which: str) -> str:
    value, interval = getattr(evaluation, which), getattr(evaluation, f"{which}_ci")
    if value is None:
        return "-"
    if interval is None:
        return _number(float(value))
    return f"{_number(float(value))} [{_number(float(interval[0]))}, {_number(float(interval[1]))}]"
