"""Evaluated rows as one HTML file that needs nothing else. What a model wrote is text there, never markup."""

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from .result import EvaluationResult

_ENVIRONMENT = Environment(
    loader=PackageLoader("hf_vlm_rl.evaluation", ""),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["reward"] = lambda value: "-" if value is None else f"{value:.3g}"


def save_html(
    results: Mapping[str, EvaluationResult],
    path: str | Path,
    table: str | None = None,
    title: str = "Evaluation",
) -> None:
    """Write a grid of images, prompts, completions and rewards.

    Args:
        results: Evaluations of the same rows by name, such as before and after.
        path: File to write.
        table: Above the grid; default: that of the first result.
        title: Of the page.
    """
    columns = [[(name, row) for row in result.rows] for name, result in results.items()]
    page = _ENVIRONMENT.get_template("grid.html.jinja").render(
        title=title,
        table=next(iter(results.values())).table() if table is None else table,
        rows=list(zip(*columns, strict=False)),
    )
    Path(path).write_text(page, encoding="utf-8")
