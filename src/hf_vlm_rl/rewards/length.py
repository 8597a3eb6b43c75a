"""How long a completion is, in tokens, alone or as a modifier of another reward."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .base import Reward
from .columns import as_ids

# The trainer's own column: ids lose nothing that decoding drops.
_IDS = "completion_ids"


@dataclass(frozen=True)
class LengthReward(Reward):
    """1 for completions of the wanted length, falling to 0 in a straight line outside.

    Columns: `completion_ids`, which trainers pass.
    Range: [0, 1].
    Malformed: cannot be; an empty completion has length 0.

    Args:
        shortest: Fewest tokens with full reward.
        longest: Most tokens with full reward.
        margin: Tokens outside over which the reward falls to 0; 0 is a step.

    Raises:
        ValueError: If not 0 <= shortest <= longest, or margin < 0.
    """

    shortest: int
    longest: int
    margin: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.shortest <= self.longest or self.margin < 0:
            raise ValueError(
                f"Got shortest={self.shortest}, longest={self.longest}, margin={self.margin}. Expected "
                "0 <= shortest <= longest and margin >= 0, in tokens."
            )

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion, see `Reward.__call__`."""
        every = self.read(columns, _IDS, len(completions), as_ids)
        return [None if ids is None else self._score(len(ids)) for ids in every]

    def _score(self, length: int) -> float:
        outside = max(self.shortest - length, length - self.longest, 0)
        return 1.0 if not outside else max(0.0, 1 - outside / self.margin) if self.margin else 0.0


@dataclass(frozen=True)
class CosineLengthReward(Reward):
    """A right answer is worth more when short, a wrong one less bad when long.

    Between length 0 and `longest` the reward follows half a cosine; beyond it stays.

    Columns: `completion_ids`, which trainers pass, and those of `reward`.
    Range: between the smallest and the largest of `right` and `wrong`; default [-1, 1].
    Malformed: what `reward` makes of it, scaled as a wrong answer.

    Args:
        reward: Says what is right: at least `threshold`.
        longest: Tokens where the cosine ends.
        right: Rewards of right answers of length 0 and `longest`.
        wrong: Rewards of wrong answers of length 0 and `longest`.
        threshold: The least reward that counts as right.

    Raises:
        ValueError: If longest < 1.
    """

    reward: Callable
    longest: int
    right: tuple[float, float] = (1.0, 0.5)
    wrong: tuple[float, float] = (-1.0, -0.5)
    threshold: float = 1.0

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise ValueError(f"Got longest={self.longest}. Expected 1 token or more.")

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion, see `Reward.__call__`."""
        every = self.read(columns, _IDS, len(completions), as_ids)
        rewards = self.reward(completions=completions, **columns)
        return [
            None if reward is None or ids is None else self._score(reward >= self.threshold, len(ids))
            for reward, ids in zip(rewards, every, strict=True)
        ]

    def _score(self, is_right: bool, length: int) -> float:
        short, long = self.right if is_right else self.wrong
        return long + (short - long) * (1 + math.cos(math.pi * min(length / self.longest, 1))) / 2
