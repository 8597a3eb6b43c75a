"""Scores: each completion is judged alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .judge import Ask, ImageJudge
from .questions import INSTRUCTIONS, REFERENCE, Question, document
from .rows import JudgedRow
from .usage import NoVerdictError

# The schema lists every score.
MOST_STEPS = 100


@dataclass(frozen=True, kw_only=True)
class ScoreJudge(ImageJudge):
    """A model on a server looks at the images and scores each completion.

    Range: [0, 1]: (score - low) / (high - low).

    Args:
        low: The worst score, a whole number.
        high: The best score, a whole number at most 100 above `low`.

    Raises:
        ValueError: If there are fewer than 2 scores, or more than 101.
    """

    low: int = 0
    high: int = 10

    value: ClassVar[str] = "score"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = type(self.low) is int and type(self.high) is int
        if not whole or not 1 <= self.high - self.low <= MOST_STEPS:
            raise ValueError(
                f"Got low={self.low!r} and high={self.high!r}. Expected two whole numbers, the second 1 to "
                f"{MOST_STEPS} above the first."
            )

    @property
    def values(self) -> Sequence[int]:
        """All scores."""
        return range(self.low, self.high + 1)

    async def scores(self, rows: Sequence[JudgedRow], ask: Ask) -> list[float | NoVerdictError]:
        """One number in [0, 1] per row, or why there is none."""
        verdicts = await ask([self._question(row) for row in rows])
        return [
            verdict if isinstance(verdict, NoVerdictError) else (verdict - self.low) / (self.high - self.low)
            for verdict in verdicts
        ]

    def _question(self, row: JudgedRow) -> Question:
        fields = f"`answer` is the answer{REFERENCE if row.reference else ''}"
        score = f"a whole number from {self.low} (worst) to {self.high} (best)"
        reply = f'{{"reason": one or two sentences, "score": {score}}}'
        text = INSTRUCTIONS.format(
            task="You score the answer of another model.", fields=fields, criteria=self.criteria, reply=reply
        )
        shown = document(row.shown(answer=row.completion))
        return Question(text, shown, row.pictures)
