"""A bonus for reasoning that leads to the right answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .base import Reward
from .columns import as_texts
from .completions import MAX_CHARS, extract_tag, text_of, words


@dataclass(frozen=True)
class AnswerAndReasoningReward(Reward):
    """Another reward, plus a bonus where the answer is right and the reasoning comes to it.

    The reasoning must have some words and, with `mentions`, name the right answer. Wrong answers never get
    the bonus, so that empty reasoning is not paid for.

    Columns: those of `reward`; with `mentions`, that one: a string or a list of acceptable ones.
    Range: that of `reward`, plus `bonus` at the top.
    Malformed: what `reward` makes of it; no reasoning means no bonus.

    Args:
        reward: Says what is right: at least `threshold`.
        bonus: What reasoning adds.
        min_words: The least number of words.
        mentions: The column whose text the reasoning must name; where it is None, any reasoning will do.
        tag: Where the reasoning stands.
        threshold: The least reward that counts as right.
    """

    reward: Callable
    bonus: float = 0.5
    min_words: int = 5
    mentions: str | None = None
    tag: str = "think"
    threshold: float = 1.0

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion, see `Reward.__call__`."""
        rewards = self.reward(completions=completions, **columns)
        rows = len(completions)
        mentions = [()] * rows
        if self.mentions is not None:
            mentions = self.read(columns, self.mentions, rows, as_texts)
        return [
            reward + self.bonus
            if reward is not None and reward >= self.threshold and self._reasons(text_of(completion), names)
            else reward
            for reward, completion, names in zip(rewards, completions, mentions, strict=True)
        ]

    def _reasons(self, text: str, names: tuple[str, ...] | None) -> bool:
        reasoning = words((extract_tag(text, self.tag) or "")[-MAX_CHARS:])
        if len(reasoning) < self.min_words:
            return False
        # Spaces on both sides: whole words.
        spaced = f" {' '.join(reasoning)} "
        return not names or any(f" {' '.join(words(name))} " in spaced for name in names)
