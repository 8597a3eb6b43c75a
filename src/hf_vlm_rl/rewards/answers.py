"""Answers that are compared as text: as they stand, normalised, or by their edit distance."""

from dataclasses import dataclass

from .base import AnswerReward, need
from .columns import as_texts
from .completions import words

_ARTICLES = frozenset(("a", "an", "the"))
# Edit distance is quadratic (in steps of 64 characters): this bounds it to milliseconds.
_MAX_CHARS = 8_192


@dataclass(frozen=True, kw_only=True)
class ExactMatchReward(AnswerReward):
    """1 if the answer is exactly one that the row accepts.

    Columns: `answer`: a string, a number, or a list of acceptable ones.
    Range: 0 or 1.
    Malformed: 0, for an empty answer.
    """

    target = staticmethod(as_texts)

    def parse_answer(self, answer: str) -> str | None:
        """The answer without white space around it."""
        return answer or None

    def score(self, parsed: str, target: tuple[str, ...]) -> float:
        """1 or 0."""
        return float(parsed in {acceptable.strip() for acceptable in target})


@dataclass(frozen=True, kw_only=True)
class NormalizedMatchReward(ExactMatchReward):
    """1 if the answer is right but for case, accents, punctuation, spacing and English articles.

    Columns: `answer`: a string, a number, or a list of acceptable ones.
    Range: 0 or 1.
    Malformed: 0, for an empty answer.
    """

    def score(self, parsed: str, target: tuple[str, ...]) -> float:
        """1 or 0."""
        return float(_normalized(parsed) in {_normalized(acceptable) for acceptable in target})


def _normalized(text: str) -> tuple[str, ...]:
    every = words(text)
    content = [word for word in every if word not in _ARTICLES] or every
    # A text of symbols alone has no words: compare the symbols.
    return tuple(content) or (text.strip(),)


@dataclass(frozen=True, kw_only=True)
class OCRReward(ExactMatchReward):
    """Edit similarity of the answer with the text to be read: 1 - distance / length of the longer one.

    Needs rapidfuzz. Runs of white space count as one space. Of longer texts, the first 8,192 characters
    count.

    Columns: `answer`: the text, or a list of acceptable ones; the most similar counts.
    Range: [0, 1].
    Malformed: 0, for an empty answer.

    Args:
        threshold: Similarities below give 0; with 0.5 this is ANLS.
        ignore_case: Compare without upper and lower case.

    Raises:
        ImportError: If rapidfuzz is not installed.
        ValueError: If the threshold is not in [0, 1].
    """

    threshold: float = 0.0
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"Got threshold={self.threshold}. Expected 0 to 1.")

    def score(self, parsed: str, target: tuple[str, ...]) -> float:
        """The similarity."""
        similarity = need("rapidfuzz.distance", "rapidfuzz").Levenshtein.normalized_similarity
        best = max(similarity(self._compared(parsed), self._compared(text)) for text in target)
        return best if best >= self.threshold else 0.0

    def _compared(self, text: str) -> str:
        text = " ".join(text.split())[:_MAX_CHARS]
        return text.casefold() if self.ignore_case else text


exact_match_reward = ExactMatchReward()
normalized_match_reward = NormalizedMatchReward()
ocr_reward = OCRReward()
