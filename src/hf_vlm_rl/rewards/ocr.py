"""Text that was read: edit similarity."""

from dataclasses import dataclass

from .answers import ExactMatchReward
from .base import need

# Edit distance is quadratic (in steps of 64 characters): this bounds it to milliseconds.
_MAX_CHARS = 8_192


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
        column: The column with the text.
        tag: Where the answer stands, see `extract_answer`; None for the whole completion.

    Raises:
        ImportError: If rapidfuzz is not installed.
        ValueError: If the threshold is not in [0, 1].
    """

    threshold: float = 0.0
    ignore_case: bool = False

    def __post_init__(self):
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"Got threshold={self.threshold}. Expected 0 to 1.")

    def score(self, parsed: str, target: tuple[str, ...]) -> float:
        """The similarity."""
        levenshtein = need("rapidfuzz.distance", "rapidfuzz").Levenshtein
        similarities = (
            levenshtein.normalized_similarity(self._of(parsed), self._of(text)) for text in target
        )
        best = max(similarities)
        return best if best >= self.threshold else 0.0

    def _of(self, text: str) -> str:
        text = " ".join(text.split())[:_MAX_CHARS]
        return text.casefold() if self.ignore_case else text


ocr_reward = OCRReward()
