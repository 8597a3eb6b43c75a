"""Two evaluations of the same rows: what changed, and whether by chance."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .estimates import Estimate, bootstrap, mcnemar, mean_over_prompts, paired_shares
from .measurement import Evaluation, evaluations_of
from .pages import save_html
from .result import EvaluationResult, RewardScores
from .table import Table

# Settings under which one model's results differ by chance alone, or not at all.
INDIFFERENT = ("batch_size", "benchmarks", "seed")


@dataclass(frozen=True)
class RewardChange:
    """One reward before and after, over the rows that have a value in both.

    Attributes:
        before: Mean before.
        after: Mean after.
        difference: After minus before, paired by row. For values of 0 and 1 with one completion per row the
            interval is Bonett and Price's, else a BCa bootstrap over rows, from 20 rows on.
        better: Rows whose mean rose.
        worse: Rows whose mean fell.
        p_value: McNemar's exact test, two-sided; None unless values are 0 and 1 with one completion a row.
    """

    before: Estimate
    after: Estimate
    difference: Estimate
    better: int
    worse: int
    p_value: float | None


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; `str()` of it is a Markdown table.

    Attributes:
        before: The evaluation to compare with.
        after: The evaluation that is compared.
        rewards: Name of a reward to its change.
    """

    before: EvaluationResult
    after: EvaluationResult
    rewards: dict[str, RewardChange]

    @property
    def summary(self) -> Table:
        """Before, after and difference."""
        columns = ("reward", "n", "before", "after", "difference", "better / worse", "p (McNemar)")
        lines = []
        for name, change in self.rewards.items():
            p_value = "-" if change.p_value is None else f"{change.p_value:.2g}"
            estimates = map(str, (change.before, change.after, change.difference))
            counts = f"{change.better} / {change.worse}"
            lines.append((name, str(change.difference.n), *estimates, counts, p_value))
        return Table(columns, tuple(lines))

    def table(self) -> str:
        """The summary in Markdown."""
        return self.summary.markdown()

    __str__ = table

    def evaluations(
        self, dataset: str | None = None, metrics: Mapping[str, str] | None = None, **about: Any
    ) -> list[Evaluation]:
        """The means before and after as an adapter's card shows them.

        Args:
            dataset: The dataset's name for people. Default: the names of benchmarks, see `from_lmms`.
            metrics: Name of a reward to its name on the card. Default: the same.
            **about: `dataset_id`, `split`, ... of `Evaluation`.
        """
        means = {name: (change.before, change.after) for name, change in self.rewards.items()}
        return evaluations_of(means, dataset, metrics, about, self.after.settings.get("benchmarks", {}))

    def save_html(self, path: str | Path) -> None:
        """Write the kept rows, with the completions before and after, as one HTML file with their images."""
        sides = {"before": self.before.rows, "after": self.after.rows}
        save_html(sides, path, self.summary, self._passes)

    def _passes(self, reward: str, value: float | None) -> bool | None:
        # Graded on one side, a reward is graded on both.
        results = [result for result in (self.before, self.after) if reward in result.rewards]
        verdicts = [result.passes(reward, value) for result in results]
        return None if None in verdicts else all(verdicts)


def compare(before: EvaluationResult, after: EvaluationResult) -> Comparison:
    """Pair two evaluations row by row.

    ```python
    with model.disable_adapter():
        before = evaluate(model, held_out, rewards)
    print(compare(before, evaluate(model, held_out, rewards)))
    ```

    Args:
        before: Result of the model before training, or of any other model.
        after: Result of the model after training, on the same rows in the same order. If it was generated
            with other settings, such as another `max_new_tokens`, a warning names them.

    Raises:
        ValueError: If the rows differ, or no reward is in both.
    """
    if before.row_ids != after.row_ids:
        pairs = zip(before.row_ids, after.row_ids, strict=False)
        first = next((row for row, (one, other) in enumerate(pairs) if one != other), "none of both")
        raise ValueError(
            f"Got {before.n} rows before and {after.n} after; the first that differ: {first}. Expected the "
            "same prompts and images in the same order, through the same processor or version of lmms-eval."
        )
    names = [name for name in before.rewards if name in after.rewards]
    if not names:
        raise ValueError(
            f"Got rewards {sorted(before.rewards)} before and {sorted(after.rewards)} after. Expected one in "
            "both."
        )
    settings = sorted({*before.settings, *after.settings} - {*INDIFFERENT})
    values = {name: (before.settings.get(name), after.settings.get(name)) for name in settings}
    if different := [f"{name} ({old} and {new})" for name, (old, new) in values.items() if old != new]:
        warnings.warn(
            f"Before and after were generated with other {', '.join(different)}. What changed may come from "
            "that: evaluate both with the same settings.",
            stacklevel=2,
        )
    changes = {name: _change(before.rewards[name], after.rewards[name]) for name in names}
    return Comparison(before, after, changes)


def _change(before: RewardScores, after: RewardScores) -> RewardChange:
    pairs = [(old, new) for old, new in zip(before.given, after.given, strict=True) if old and new]
    mean_before = mean_over_prompts([old for old, _ in pairs])
    mean_after = mean_over_prompts([new for _, new in pairs])
    if not pairs:
        return RewardChange(mean_before, mean_after, mean_before, 0, 0, None)
    old, new = (np.array([np.mean(values) for values in side]) for side in zip(*pairs, strict=True))
    better, worse = int((new > old).sum()), int((new < old).sum())
    p_value = None
    single = all(len(values) == 1 for pair in pairs for values in pair)
    if single and np.isin([old, new], (0, 1)).all():
        difference, p_value = paired_shares(old, new), mcnemar(better, worse)
    else:
        difference = bootstrap(new - old)
    return RewardChange(mean_before, mean_after, difference, better, worse, p_value)
