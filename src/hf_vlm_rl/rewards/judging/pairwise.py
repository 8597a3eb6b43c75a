"""Comparisons: the completions of a prompt are judged against each other."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .judge import Ask, ImageJudge
from .questions import INSTRUCTIONS, REFERENCE, Question, document
from .rows import JudgedRow
from .usage import NoVerdictError

FIRST, SECOND, TIE = "A", "B", "tie"
POINTS = {FIRST: 1.0, SECOND: 0.0, TIE: 0.5}


@dataclass(frozen=True, kw_only=True)
class PairJudge(ImageJudge):
    """A model on a server looks at the images and compares the completions of a prompt with each other.

    A pair is asked twice, with either one first, as judges prefer a place; a win counts 1, a tie 0.5. Equal
    texts are a tie that nobody is asked about. A pair of which one question fails does not count.

    Range: [0, 1]: the mean over a completion's pairs. A completion without a pair that counts has failed.

    Args:
        opponents: With how many others of its group a completion is compared on either side, in a ring; None
            for all. A group of G takes G * (G - 1) requests, or 2 * G * `opponents`.

    Raises:
        ValueError: If `opponents` is no whole number above 0.
    """

    opponents: int | None = None

    value: ClassVar[str] = "better"
    values: ClassVar[Sequence[str]] = (FIRST, SECOND, TIE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.opponents is not None and (type(self.opponents) is not int or self.opponents < 1):
            raise ValueError(f"Got opponents={self.opponents!r}. Expected None or a whole number, 1 or more.")

    async def scores(self, rows: Sequence[JudgedRow], ask: Ask) -> list[float | NoVerdictError]:
        """One number in [0, 1] per row, or why there is none."""
        pairs = [pair for group in _groups(rows) for pair in self._pairs(group)]
        questions = [
            self._question(rows[first], rows[second])
            for a, b in pairs
            for first, second in ((a, b), (b, a))
            if rows[a].completion != rows[b].completion
        ]
        verdicts = iter(await ask(questions))
        points: list[list[float]] = [[] for _ in rows]
        failures: list[NoVerdictError] = [
            NoVerdictError("no pair", "its group has one completion") for _ in rows
        ]
        for a, b in pairs:
            equal = rows[a].completion == rows[b].completion
            there, back = (TIE, TIE) if equal else (next(verdicts), next(verdicts))
            if failure := next((each for each in (there, back) if isinstance(each, NoVerdictError)), None):
                failures[a] = failures[b] = failure
                continue
            won = (POINTS[there] + 1 - POINTS[back]) / 2
            points[a].append(won)
            points[b].append(1 - won)
        return [
            sum(own) / len(own) if own else failure for own, failure in zip(points, failures, strict=True)
        ]

    def _pairs(self, group: Sequence[int]) -> list[tuple[int, int]]:
        size = len(group)
        if self.opponents is None or 2 * self.opponents >= size - 1:
            return list(itertools.combinations(group, 2))
        return [
            (group[place], group[(place + step) % size])
            for place in range(size)
            for step in range(1, self.opponents + 1)
        ]

    def _question(self, a: JudgedRow, b: JudgedRow) -> Question:
        fields = f"`answer_A` and `answer_B` are the answers{REFERENCE if a.reference else ''}"
        reply = '{"reason": one or two sentences, "better": "A", "B" or "tie"}'
        text = INSTRUCTIONS.format(
            task="You compare answers of other models.", fields=fields, criteria=self.criteria, reply=reply
        )
        shown = document(a.shown(answer_A=a.completion, answer_B=b.completion))
        return Question(text, shown, a.pictures)


def _groups(rows: Sequence[JudgedRow]) -> list[list[int]]:
    """The rows of each prompt: trainers do not all put them next to each other."""
    groups: dict[tuple, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(row.group, []).append(index)
    return list(groups.values())
