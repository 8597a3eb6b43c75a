"""What is known of the rows that are done: enough for the result, whatever the dataset's size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .generate import Completion
from .kept_rows import EvaluatedRow
from .result import EvaluationResult, RewardScores


@dataclass(frozen=True)
class Done:
    """A row with its completions, still with their ids and without rewards, or why there are none.

    Attributes:
        index: The row's place in the dataset, from 0.
        row_id: Hash of its ids and images; "" with a failure.
        completions: The completions, as many as generations.
        images: Thumbnails, for rows that are kept.
        failure: Why the row could not be encoded.
    """

    index: int
    row_id: str = ""
    completions: tuple[Completion, ...] = ()
    images: tuple[str, ...] = ()
    failure: str | None = None


@dataclass
class Tally:
    """Adds up rows in the dataset's order.

    Args:
        names: The rewards' names.
    """

    names: Sequence[str]
    values: dict[str, list[tuple[float | None, ...]]] = field(init=False)
    row_ids: list[str] = field(default_factory=list)
    rows: list[EvaluatedRow] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)
    completions: int = 0
    clipped: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.values = {name: [] for name in self.names}

    def add(
        self,
        done: Sequence[Done],
        rewards: Sequence[Sequence[tuple]],
        kept: Sequence[tuple[str, dict[str, str]]],
    ) -> None:
        """Take in a window.

        Args:
            done: The window's rows.
            rewards: Per reward, the values of each row without a failure.
            kept: Prompt and reference, as text, of the first of these rows: those that are kept.
        """
        self.failures |= {row.index: row.failure for row in done if row.failure is not None}
        good = [row for row in done if row.failure is None]
        for column, values in zip(self.values.values(), rewards, strict=True):
            column += values
        for row, (prompt, reference), *values in zip(good, kept, *rewards, strict=False):
            texts = tuple(completion.text for completion in row.completions)
            by_name = dict(zip(self.names, values, strict=True))
            self.rows.append(EvaluatedRow(row.index, prompt, texts, by_name, row.images, reference))
        self.row_ids += [row.row_id for row in good]
        completions = [completion for row in good for completion in row.completions]
        self.completions += len(completions)
        self.clipped += sum(completion.clipped for completion in completions)
        self.tokens += sum(len(completion.ids) for completion in completions)

    def result(
        self, thresholds: Mapping[str, float], confidence: float, settings: Mapping[str, Any]
    ) -> EvaluationResult:
        """The result.

        Raises:
            ValueError: If no row was evaluated.
        """
        if not self.completions:
            first = next(iter(self.failures.values()), "the dataset is empty")
            raise ValueError(f"No row was evaluated, {len(self.failures)} failed. The first: {first}")
        return EvaluationResult(
            rewards={
                name: RewardScores(tuple(column), thresholds.get(name), confidence)
                for name, column in self.values.items()
            },
            row_ids=tuple(self.row_ids),
            rows=tuple(self.rows),
            failures=self.failures,
            clipped=self.clipped / self.completions,
            mean_length=self.tokens / self.completions,
            settings=dict(settings),
        )
