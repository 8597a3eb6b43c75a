"""Evaluated rows as one HTML file that needs nothing else. What a model wrote is text there, never markup."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from .kept_rows import EvaluatedRow

_ENVIRONMENT = Environment(
    loader=PackageLoader("hf_vlm_rl.evaluation", ""),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["reward"] = lambda value: "-" if value is None else f"{value:.3g}"


def save_html(
    sides: Mapping[str, Sequence[EvaluatedRow]], path: str | Path, table: str, title: str = "Evaluation"
) -> None:
    """Write a grid of images, prompts, completions and rewards.

    Args:
        sides: Evaluated rows by the name of the model, such as before and after; the same rows in the same
            order on each side.
        path: File to write.
        table: Above the grid.
        title: Of the page.
    """
    rows = [[(name, row) for row in side] for name, side in sides.items()]
    page = _ENVIRONMENT.get_template("grid.html.jinja").render(
        title=title, table=table, rows=list(zip(*rows, strict=False))
    )
    Path(path).write_text(page, encoding="utf-8")
