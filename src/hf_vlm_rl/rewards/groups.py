"""Groups: the completions of one prompt, found among the rows of a batch."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import PIL.Image

from ..errors import ColumnError
from .base import Reward

# Differ between the completions of one prompt, or are no columns.
_VARYING = frozenset(("completions", "completion_ids", "environments", "prompts"))


def groups_of(
    prompts: list, columns: Mapping[str, Any] | None = None, num_generations: int | None = None
) -> list[range]:
    """The rows of each group, as trainers order them: the completions of a prompt follow each other.

    Args:
        prompts: B prompts: strings or messages, images included.
        columns: Further keyword arguments of the reward function. Lists of B values must be equal
            within a group, too: two images with the same question are two groups.
        num_generations: The size of a group, if known. Needed where rows of the dataset are equal in
            everything.

    Raises:
        ValueError: If the rows are no multiple of `num_generations`.
    """
    rows = len(prompts)
    if num_generations is not None:
        if num_generations < 1 or rows % num_generations:
            raise ValueError(
                f"Got {rows} rows and num_generations={num_generations}. Expected whole groups in each "
                "process: make per_device_train_batch_size * steps_per_generation a multiple of it."
            )
        return [range(start, start + num_generations) for start in range(0, rows, num_generations)]
    lists = [prompts] + [
        values
        for name, values in (columns or {}).items()
        if name not in _VARYING and isinstance(values, list) and len(values) == rows
    ]
    changes = [
        row for row in range(1, rows) if not all(_same(values[row - 1], values[row]) for values in lists)
    ]
    return [range(start, end) for start, end in itertools.pairwise([0, *changes, rows]) if start < end]


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, PIL.Image.Image) and isinstance(b, PIL.Image.Image):
        return a.size == b.size and a.mode == b.mode and a.tobytes() == b.tobytes()
    if hasattr(a, "tolist") and hasattr(b, "tolist"):  # arrays of numpy, torch or others
        return a.shape == b.shape and a.tolist() == b.tolist()
    return type(a) is type(b) and (a == b or a != a)  # nan too


@dataclass(frozen=True)
class GroupAccuracyReward(Reward):
    """Right rows get the share of right rows in their group to the power of 3, wrong ones 0.

    A group that agrees on the right answer is worth more than a lucky hit.

    Columns: `prompts`, which trainers pass, and those of `reward`.
    Range: [0, 1].
    Malformed: 0, if `reward` does not call it right.

    Groups are found in the rows of one process. Where a group is split between processes, each sees its own
    part: keep per_device_train_batch_size * steps_per_generation a multiple of num_generations.

    Args:
        reward: Says what is right: at least `threshold`.
        power: Of the share.
        threshold: The least reward that counts as right.
        num_generations: See `groups_of`.

    Raises:
        ValueError: If power < 0.
    """

    reward: Callable
    power: float = 3.0
    threshold: float = 1.0
    num_generations: int | None = None

    def __post_init__(self) -> None:
        if self.power < 0:
            raise ValueError(f"Got power={self.power}. Expected 0 or more.")

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion; rows from which `reward` abstains do not count in their group."""
        if "prompts" not in columns:
            raise ColumnError(f"{self.__name__} finds groups by `prompts`, which is missing. Pass prompts=.")
        judged = self.reward(completions=completions, **columns)
        rewards: list[float | None] = [None] * len(judged)
        for group in groups_of(columns["prompts"], columns, self.num_generations):
            right = {row: judged[row] >= self.threshold for row in group if judged[row] is not None}
            share = sum(right.values()) / max(len(right), 1)
            for row, is_right in right.items():
                rewards[row] = share**self.power if is_right else 0.0
        return rewards
