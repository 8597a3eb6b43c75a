"""Repetition: completions that say the same words again and again."""

from dataclasses import dataclass
from typing import Any, Literal

from .base import Reward
from .columns import as_ids
from .completions import MAX_CHARS, text_of, words

# Enough to see a loop; keeps the cost of a runaway completion small.
_MAX_UNITS = 20_000


@dataclass(frozen=True, kw_only=True)
class RepetitionReward(Reward):
    """Minus the share of n-grams that were there before, as a penalty.

    Columns: none; with `unit="tokens"`, `completion_ids`, which trainers pass.
    Range: [-1, 0].
    Malformed: cannot be; completions shorter than `n` get 0.

    Args:
        n: Length of the n-grams.
        unit: "words", or "tokens", which also suits languages without spaces.

    Raises:
        ValueError: If n < 1, or the unit is another.
    """

    n: int = 4
    unit: Literal["words", "tokens"] = "words"

    def __post_init__(self) -> None:
        if self.n < 1 or self.unit not in ("words", "tokens"):
            raise ValueError(
                f"Got n={self.n} and unit={self.unit!r}. Expected n >= 1 and 'words' or 'tokens'."
            )

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion, see `Reward.__call__`."""
        if self.unit == "words":
            units = [words(text_of(completion)[-MAX_CHARS:]) for completion in completions]
        else:
            units = self.read(columns, "completion_ids", len(completions), as_ids)
        return [None if row is None else self._score(row[-_MAX_UNITS:]) for row in units]

    def _score(self, units: list) -> float:
        total = len(units) - self.n + 1
        if total < 1:
            return 0.0
        distinct = len(set(zip(*(units[start:] for start in range(self.n)), strict=False)))
        return distinct / total - 1


repetition_reward = RepetitionReward()
