"""One measurement before and after training, and the two forms in which the Hub stores it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from huggingface_hub import EvalResult, EvalResultEntry

from .estimates import Estimate


@dataclass(frozen=True)
class Evaluation:
    """One metric on one dataset.

    Attributes:
        dataset: Name for people, e.g. "Digits, held out".
        metric: Name of the metric, e.g. "accuracy".
        n: Rows evaluated, > 0.
        after: Value of the adapter.
        before: Value before training, on the same rows, if it was measured.
        before_ci: Confidence interval of `before`, (low, high).
        after_ci: Confidence interval of `after`, (low, high).
        confidence: Level of the intervals, in (0, 1).
        dataset_id: The dataset on the Hub, if it is there.
        config: The dataset's configuration.
        split: The dataset's split.
        revision: The dataset's commit.
        task_id: Task of a benchmark that has a leaderboard on the Hub; with `dataset_id`, the result
            is also written to `.eval_results/`.

    Raises:
        ValueError: If a number is not finite, an interval does not hold its value, or `n` is not
            positive.
    """

    dataset: str
    metric: str
    n: int
    after: float
    before: float | None = None
    before_ci: tuple[float, float] | None = None
    after_ci: tuple[float, float] | None = None
    confidence: float = 0.95
    dataset_id: str | None = None
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    task_id: str | None = None

    def __post_init__(self) -> None:
        about = f"Evaluation of {self.metric!r} on {self.dataset!r}"
        if self.n < 1:
            raise ValueError(f"{about}: got n={self.n}. Expected the number of rows, at least 1.")
        if not 0 < self.confidence < 1:
            raise ValueError(f"{about}: got confidence={self.confidence}. Expected a level such as 0.95.")
        for name in ("before", "after"):
            value, interval = getattr(self, name), getattr(self, f"{name}_ci")
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{about}: got {name}={value}. Expected a finite number.")
            if interval is None:
                continue
            if value is None or len(interval) != 2 or not interval[0] <= value <= interval[1]:
                raise ValueError(
                    f"{about}: got {name}={value} and {name}_ci={interval}. "
                    "Expected (low, high) around the value."
                )

    def eval_result(self) -> EvalResult:
        """For the card's `model-index`: the adapter's value, with n, intervals and the base's beside it."""
        return EvalResult(
            task_type="image-text-to-text",
            dataset_type=self.dataset_id or "-".join(self.dataset.lower().split()),
            dataset_name=self.dataset,
            dataset_config=self.config,
            dataset_split=self.split,
            dataset_revision=self.revision,
            metric_type=self.metric,
            metric_name=self.metric,
            metric_value=self.after,
            metric_args=self._details(),
        )

    def entry(self) -> EvalResultEntry | None:
        """For `.eval_results/`; None where it does not apply, as the dataset is no benchmark on the Hub."""
        if self.dataset_id is None or self.task_id is None:
            return None
        notes = ", ".join(f"{key} {value}" for key, value in self._details().items())
        return EvalResultEntry(
            dataset_id=self.dataset_id,
            task_id=self.task_id,
            value=self.after,
            dataset_revision=self.revision,
            notes=notes,
        )

    def _details(self) -> dict:
        level = f"ci_{self.confidence:.0%}".removesuffix("%")
        details = {
            "n": self.n,
            level: None if self.after_ci is None else list(self.after_ci),
            "before": self.before,
            f"before_{level}": None if self.before_ci is None else list(self.before_ci),
        }
        return {key: value for key, value in details.items() if value is not None}


def evaluations_of(
    means: Mapping[str, tuple[Estimate | None, Estimate]],
    dataset: str | None,
    metrics: Mapping[str, str] | None,
    about: Mapping[str, Any],
    benchmarks: Mapping[str, Mapping[str, str]],
) -> list[Evaluation]:
    """An evaluation of each reward that has values, of its mean before training, if measured, and after.

    `metrics` has the names of rewards on the card, and `about` has `dataset_id`, `split`, ... of
    `Evaluation`. Without `dataset`, `benchmarks` has `dataset` and `metric` by reward.

    Raises:
        ValueError: If a reward has no dataset.
    """
    if dataset is None and (unnamed := sorted(means.keys() - benchmarks.keys())):
        raise ValueError(f"Got no dataset for {unnamed}. Expected its name; benchmarks alone have their own.")
    names: dict[str, Any] = {
        name: benchmarks[name]
        if dataset is None
        else {"dataset": dataset, "metric": (metrics or {}).get(name, name)}
        for name in means
    }
    return [
        Evaluation(
            **names[name],
            n=after.n,
            after=after.value,
            before=None if before is None else before.value,
            before_ci=None if before is None else before.interval,
            after_ci=after.interval,
            **about,
        )
        for name, (before, after) in means.items()
        if after.n
    ]
