"""`Reward`: what all parameterised rewards share. `RowReward`: those that look at one row at a time."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
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
    parse. The share that parses is logged, see `log_parse_rate`.
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
        rewards: list[float | None] = []
        parses: list[bool] = []
        for completion, target in zip(completions, self.targets(columns, len(completions)), strict=True):
            if target is None:
                rewards.append(None)
                continue
            parsed = self.parse(text_of(completion))
            parses.append(parsed is not None)
            rewards.append(self.malformed if parsed is None else float(self.score(parsed, target)))
        log_parse_rate(columns, self.__name__, parses)
        return rewards


def log_parse_rate(columns: Mapping[str, Any], name: str, parses: Sequence[bool]) -> None:
    """Log the share of completions that parse as `<name>/parse_rate`, where the trainer takes metrics.

    GRPO and RLOO pass `log_metric` to reward functions; they average over processes and logged steps.

    Args:
        columns: The keyword arguments of the reward function.
        name: The reward's name.
        parses: Of each row that the reward is for, whether its completion parses.
    """
    log = columns.get("log_metric")
    if callable(log):
        # All processes must log the same names, or trainers wait for ever; they leave nan out.
        log(f"{name}/parse_rate", sum(parses) / len(parses) if parses else math.nan)


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
