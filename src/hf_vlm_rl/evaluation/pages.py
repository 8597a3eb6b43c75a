"""Evaluated rows as one HTML file that needs nothing else. What a model wrote is text there, never markup."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from jinja2 import Environment, PackageLoader, StrictUndefined

from .kept_rows import EvaluatedRow
from .table import Table

_ENVIRONMENT = Environment(
    loader=PackageLoader("hf_vlm_rl.evaluation", ""),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["reward"] = lambda value: "-" if value is None else f"{value:.3g}"

# Whether a value of a reward, given its name, is right; None where the reward does not say.
Passes = Callable[[str, float | None], bool | None]
VERDICTS = {True: "right", False: "wrong", None: ""}
FILTERS = ("changed", "better", "worse", "right", "wrong")


@dataclass(frozen=True)
class Completion:
    """A completion on the page, with name, value and verdict of each reward.

    `side` says whose it is, such as "before". `verdict` is "wrong" if a reward says so, "right" if all that
    say something do, or "".
    """

    side: str
    text: str
    rewards: tuple[tuple[str, float | None, str], ...]
    verdict: str


def save_html(
    sides: Mapping[str, Sequence[EvaluatedRow]], path: str | Path, table: Table, passes: Passes
) -> None:
    """Write a summary and a grid of images, prompts, references, completions and rewards.

    Right and wrong completions are coloured and marked. Rows can be filtered: of two sides those of which a
    reward changed, rose or fell; of one side those that are right or wrong. A click on an image makes it as
    large as the window. The page runs no script.

    Args:
        sides: One or two: evaluated rows by the name of the model, such as before and after, or "". The same
            rows in the same order on each side.
        path: File to write.
        table: Above the grid.
        passes: Says of a reward's name and a value whether it is right.
    """
    rows = []
    for same_row in zip(*sides.values(), strict=False):
        shown = [
            completion
            for side, row in zip(sides, same_row, strict=True)
            for completion in _completions(side, row, passes)
        ]
        marks = _changes(*same_row) if len(same_row) == 2 else {one.verdict for one in shown}
        rows.append((same_row[0], shown, marks))
    counts = {mark: sum(mark in marks for _, _, marks in rows) for mark in FILTERS}
    page = _ENVIRONMENT.get_template("grid.html.jinja").render(
        table=table,
        rows=rows,
        filters={"all": len(rows)} | {mark: count for mark, count in counts.items() if count},
    )
    Path(path).write_text(page, encoding="utf-8")


def _completions(side: str, row: EvaluatedRow, passes: Passes) -> list[Completion]:
    shown = []
    for nth, text in enumerate(row.completions):
        values = {name: values[nth] for name, values in row.rewards.items()}
        verdicts = {name: passes(name, value) for name, value in values.items()}
        clear = [verdict for verdict in verdicts.values() if verdict is not None]
        rewards = tuple((name, value, VERDICTS[verdicts[name]]) for name, value in values.items())
        shown.append(Completion(side, text, rewards, VERDICTS[all(clear) if clear else None]))
    return shown


def _changes(before: EvaluatedRow, after: EvaluatedRow) -> set[str]:
    """Whether the mean of a reward over the row's completions rose, fell or both."""
    marks = set()
    for name in before.rewards.keys() & after.rewards.keys():
        sides = [[value for value in row.rewards[name] if value is not None] for row in (before, after)]
        if all(sides):
            old, new = map(mean, sides)
            marks |= {"better"} if new > old else {"worse"} if new < old else set()
    return marks | ({"changed"} if marks else set())
