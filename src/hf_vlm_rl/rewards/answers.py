"""Answers that are compared as text: as they stand, or normalised."""

from dataclasses import dataclass
from typing import Any

from .base import RowReward
from .columns import as_texts
from .completions import extract_answer, words

_ARTICLES = frozenset(("a", "an", "the"))


@dataclass(frozen=True, kw_only=True)
class ExactMatchReward(RowReward):
    """1 if the answer is exactly one that the row accepts.

    Columns: `answer`: a string, a number, or a list of acceptable ones.
    Range: 0 or 1.
    Malformed: 0, for an empty answer.

    Args:
        column: The column with the right answers.
        tag: Where the answer stands, see `extract_answer`; None for the whole completion.
    """

    column: str = "answer"
    tag: str | None = "answer"

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """Acceptable answers per row."""
        return self.read(columns, self.column, rows, as_texts)

    def parse(self, text: str) -> str | None:
        """The answer without white space around it."""
        return extract_answer(text, self.tag) or None

    def score(self, parsed: str, target: tuple[str, ...]) -> float:
        """1 or 0."""
        return float(parsed in {each.strip() for each in target})


@dataclass(frozen=True, kw_only=True)
class NormalizedMatchReward(ExactMatchReward):
    """1 if the answer is right but for case, accents, punctuation, spacing and English articles.

    Columns: `answer`: a string, a number, or a list of acceptable ones.
    Range: 0 or 1.
    Malformed: 0, for an empty answer.

    Args:
        column: The column with the right answers.
        tag: Where the answer stands, see `extract_answer`; None for the whole completion.
    """

    def score(self, parsed: str, target: tuple[str, ...]) -> float:
        """1 or 0."""
        return float(_normalized(parsed) in {_normalized(each) for each in target})


def _normalized(text: str) -> tuple[str, ...]:
    found = words(text)
    content = [word for word in found if word not in _ARTICLES] or found
    # A text of symbols alone has no words: compare the symbols.
    return tuple(content) or (text.strip(),)


exact_match_reward = ExactMatchReward()
normalized_match_reward = NormalizedMatchReward()
