"""What rewards share: `Reward` all of them, `RowReward` and `AnswerReward` those that look at a row."""

import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from .._install import pip_install
from .columns import read_column
from .completions import extract_answer, text_of

logger = logging.getLogger(__name__)

SILENT = 256  # completions without a value, after which a reward is told of
_without_value: dict[str, float] = {}  # completions by reward, from the first on; -inf once one had a value


@dataclass(frozen=True, kw_only=True)
class Reward(ABC):
    """A reward function as an object: picklable, comparable, with the `__name__` that trainers log.

    Args:
        name: The name in logs. Default: the class's, as in `choice_reward`.
    """

    name: str = ""

    @property
    def __name__(self) -> str:
        kind: Any = type(self)  # whose own `__name__` is a string
        return self.name or re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", kind.__name__).lower()

    @abstractmethod
    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion; None for rows that this reward is not for.

        Args:
            completions: Strings, or lists of messages.
            **columns: One list per column of the dataset, and what the trainer adds.

        Raises:
            ColumnError: If a column is missing or holds something else than expected.
        """

    def read(
        self,
        columns: Mapping[str, Any],
        name: str,
        rows: int,
        reader: Callable,
        targets: Sequence | None = None,
    ) -> list:
        """A checked column; see `columns.read_column`."""
        return read_column(columns, name, rows, reader, self.__name__, targets)


@dataclass(frozen=True, kw_only=True)
class RowReward(Reward):
    """A reward in three steps: read the row's target, parse the completion, compare.

    Subclasses say `targets`, `parse` and `score`, and with `malformed` what a completion gets that does not
    parse. The share that parses is logged, see `log_parse_rate`.
    """

    malformed: ClassVar[float] = 0.0

    @abstractmethod
    def parse(self, text: str) -> Any | None:
        """What a completion's text says, or None if it is malformed."""

    def parse_for(self, text: str, target: Any) -> Any | None:
        """`parse`, where the row's target may help to read the text."""
        return self.parse(text)

    @abstractmethod
    def score(self, parsed: Any, target: Any) -> float:
        """The reward of a parsed completion."""

    @abstractmethod
    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """What each row's completion is compared with; None where the reward does not apply."""

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion, see `Reward.__call__`."""
        rewards: list[float | None] = []
        parses: list[bool] = []
        for completion, target in zip(completions, self.targets(columns, len(completions)), strict=True):
            if target is None:
                rewards.append(None)
                continue
            parsed = self.parse_for(text_of(completion), target)
            parses.append(parsed is not None)
            rewards.append(self.malformed if parsed is None else float(self.score(parsed, target)))
        log_parse_rate(columns, self.__name__, parses)
        _tell_of_silence(self.__name__, len(rewards), bool(parses))
        return rewards


@dataclass(frozen=True, kw_only=True)
class AnswerReward(RowReward):
    """A `RowReward` that compares the answer in a completion with a column of the dataset.

    Args:
        column: The column with what is right.
        tag: The tag in which the answer stands, see `extract_answer`; None for the whole completion.
    """

    column: str = "answer"
    tag: str | None = "answer"

    @abstractmethod
    def target(self, value: Any) -> Any:
        """A value of the column in the form that `score` compares.

        Raises:
            ValueError: If the value is something else; the message is what was expected.
        """

    @abstractmethod
    def parse_answer(self, answer: str) -> Any | None:
        """What an answer says, or None if it is malformed."""

    def score(self, parsed: Any, target: Any) -> float:
        """1 if the answer says what is right, else 0."""
        return float(parsed == target)

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """What is right in each row."""
        return self.read(columns, self.column, rows, self.target)

    def parse(self, text: str) -> Any | None:
        """What the answer in a completion's text says, or None if it is malformed."""
        return self.parse_answer(extract_answer(text, self.tag))


def log_parse_rate(columns: Mapping[str, Any], name: str, parses: Sequence[bool]) -> None:
    """Log the share of completions that parse as `<name>/parse_rate`, where the trainer takes metrics.

    GRPO and RLOO pass `log_metric` to reward functions; they average over processes and logged steps.
    `parses` has the rows that the reward is for.
    """
    log = columns.get("log_metric")
    if callable(log):
        # All processes must log the same names, or trainers wait for ever; they leave nan out.
        log(f"{name}/parse_rate", sum(parses) / len(parses) if parses else math.nan)


def _tell_of_silence(name: str, rows: int, any_value: bool) -> None:
    """Warn once of a reward that was for none of its first rows."""
    before = _without_value.get(name, 0)
    _without_value[name] = -math.inf if any_value else before + rows
    if before < SILENT <= _without_value[name]:
        logger.warning(
            "%s returned None for each of its first %d completions: its column is None in their rows, and it "
            "teaches nothing. Name the column that has the answers (column=...), or leave the reward out. If "
            "few rows of your dataset are meant for it, all is well.",
            name,
            _without_value[name],
        )


def need(module: str, package: str) -> Any:
    """Import a module of the `rewards` extra.

    Raises:
        ImportError: If it is not installed; says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise missing(package) from error


def missing(package: str) -> ImportError:
    """The error for a package of the `rewards` extra that is not installed."""
    fix = pip_install("rewards")
    return ImportError(f"This reward needs {package}, which is not installed: {fix}")
