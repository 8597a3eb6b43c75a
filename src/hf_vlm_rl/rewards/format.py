"""The shape of a completion: reasoning and answer in their tags."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .base import Reward, log_parse_rate
from .completions import text_of


@dataclass(frozen=True)
class FormatReward(Reward):
    """1 if the completion is `<think>...</think><answer>...</answer>` and nothing else.

    Each tag stands once, in order, with something inside; between and around them there is only white space.

    Columns: none.
    Range: 0 or 1; with `partial`, [0, 1].
    Malformed: 0; with `partial`, half the share of the opening and closing tags that stand exactly once.

    Args:
        tags: The tags in their order.
        opened: The prompt ends with the first opening tag, so completions begin inside it.
        partial: Credit for single tags, so that a model without the format learns from the start.

    Raises:
        ValueError: If there is no tag, or one twice.
    """

    tags: Sequence[str] = ("think", "answer")
    opened: bool = False
    partial: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.tags, str) or not self.tags or len(set(self.tags)) != len(self.tags):
            raise ValueError(f"Got the tags {self.tags!r}. Expected a list of different names.")

    def parse(self, text: str) -> dict[str, str] | None:
        """The content of each tag, or None if the format does not hold."""
        rest = self._whole(text).strip()
        if not all(rest.count(mark) == 1 for mark in self._marks()):
            return None
        contents = {}
        for tag in self.tags:
            head, closing, tail = rest.partition(f"</{tag}>")
            contents[tag] = head.removeprefix(f"<{tag}>")
            if not closing or contents[tag] == head or not contents[tag].strip():
                return None
            rest = tail.lstrip()
        return None if rest else contents

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion, see `Reward.__call__`."""
        rewards: list[float | None] = [self._score(text_of(completion)) for completion in completions]
        log_parse_rate(columns, self.__name__, [reward == 1 for reward in rewards])
        return rewards

    def _score(self, text: str) -> float:
        if self.parse(text) is not None:
            return 1.0
        marks, text = self._marks(), self._whole(text)
        return 0.5 * sum(text.count(mark) == 1 for mark in marks) / len(marks) if self.partial else 0.0

    def _whole(self, text: str) -> str:
        return f"<{self.tags[0]}>{text}" if self.opened else text

    def _marks(self) -> list[str]:
        return [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]


format_reward = FormatReward()
