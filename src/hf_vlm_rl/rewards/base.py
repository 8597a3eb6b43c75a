"""`Reward`: what all parameterised rewards share. `RowReward`: those that look at one row at a time."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from .columns import read_column
from .completions import text_of


@dataclass(frozen=True, kw_only=True)
class Reward:
    """A reward function as an object: picklable, comparable, with the `__name__` that trainers log.

    Args:
        name: The name in logs. Default: the class's, as in `choice_reward`.
    """

    name: str = ""

    @property
    def __name__(self) -> str:
        return self.name or re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", type(self).__name__).lower()

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion; None for rows that this reward is not for.

        Args:
            completions: Strings, or lists of messages.
            **columns: One list per column of the dataset, and what the trainer adds.

        Raises:
            ColumnError: If a column is missing or holds something else than expected.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RowReward(Reward):
    """A reward in three steps: read the row's target, parse the completion, compare.

    Subclasses say `targets`, `parse` and `score`, and with `malformed` what a completion gets that does not
    parse.
    """

    malformed: ClassVar[float] = 0.0

    def parse(self, text: str) -> Any | None:
        """What a completion's text says, or None if it is malformed."""
        raise NotImplementedError

    def score(self, parsed: Any, target: Any) -> float:
        """The reward of a parsed completion."""
        raise NotImplementedError

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """What each row's completion is compared with; None where the reward does not apply."""
        raise NotImplementedError

    def read(self, columns: dict[str, Any], name: str, rows: int, reader: Callable) -> list:
        """A checked column; see `columns.read_column`."""
        return read_column(columns, name, rows, reader, self.__name__)

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """See `Reward`."""
        targets = self.targets(columns, len(completions))
        return [self._reward(*pair) for pair in zip(completions, targets, strict=True)]

    def _reward(self, completion: Any, target: Any) -> float | None:
        if target is None:
            return None
        parsed = self.parse(text_of(completion))
        return self.malformed if parsed is None else float(self.score(parsed, target))


def need(module: str, package: str) -> Any:
    """Import a module of the `rewards` extra.

    Raises:
        ImportError: If it is not installed; says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This reward needs {package}, which is not installed: pip install 'hf-vlm-rl[rewards]'"
        ) from error
