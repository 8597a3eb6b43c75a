"""`EvaluationResult`: what an evaluation measured, as numbers, table and file."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .estimates import LEAST, Estimate, mean_over_prompts, pass_at
from .kept_rows import EvaluatedRow, read_row
from .measurement import Evaluation, evaluations_of
from .pages import save_html
from .table import Table

Values = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class RewardScores:
    """One reward over a dataset.

    Attributes:
        values: Per prompt, one value per completion; None where the reward abstained.
        threshold: From which value on a completion passes; None if only 1 of 0 and 1 does.
    """

    values: Values
    threshold: float | None = None

    @cached_property
    def given(self) -> list[list[float]]:
        """Per prompt, the values without None."""
        return [[value for value in group if value is not None] for group in self.values]

    @property
    def abstained(self) -> int:
        """Completions without a value."""
        return sum(len(group) for group in self.values) - sum(map(len, self.given))

    @cached_property
    def mean(self) -> Estimate:
        """The mean over prompts, abstentions left out."""
        return mean_over_prompts(self.given)

    @cached_property
    def least(self) -> float | None:
        """The least value with which a completion passes; None for a graded reward without a threshold."""
        if self.threshold is not None:
            return self.threshold
        return 1.0 if all(value in (0, 1) for group in self.given for value in group) else None

    @cached_property
    def pass_at(self) -> dict[int, Estimate]:
        """pass@k for k = 1, 2, 4, ... and the number of generations.

        Empty for a reward with values other than 0 and 1 and no threshold, and where it would only repeat
        the mean. Prompts with fewer than k values are left out.
        """
        most = max(map(len, self.values), default=0)
        if self.least is None or (self.threshold is None and most < 2):
            return {}
        passed = [[float(value >= self.least) for value in group] for group in self.given]
        ks = [*(2**power for power in range(1, most.bit_length()) if 2**power < most), most]
        estimates = {1: mean_over_prompts(passed)}
        for k in ks if most > 1 else []:
            chances = [[pass_at(k, len(group), int(sum(group)))] for group in passed if len(group) >= k]
            estimates[k] = mean_over_prompts(chances)
        return estimates


@dataclass(frozen=True)
class EvaluationResult:
    """What `evaluate` measured; `str()` of it is a Markdown table.

    Attributes:
        rewards: Scores by the reward's name.
        row_ids: Per evaluated row, in the dataset's order, a hash of its prompt and images.
        rows: The first rows of the dataset, to look at.
        failures: Index of a row in the dataset to the reason why it could not be evaluated.
        clipped: Share of the completions that reached `max_new_tokens`, 0 to 1; None from lmms-eval.
        mean_length: Mean length of the completions in tokens, the end of turn included; None from lmms-eval.
        settings: How it was generated.
    """

    rewards: dict[str, RewardScores]
    row_ids: tuple[str, ...]
    rows: tuple[EvaluatedRow, ...]
    failures: dict[int, str]
    clipped: float | None
    mean_length: float | None
    settings: dict[str, Any]

    @property
    def n(self) -> int:
        """Rows evaluated."""
        return len(self.row_ids)

    @property
    def summary(self) -> Table:
        """Rewards with means, intervals and pass@k."""
        ks = sorted({k for scores in self.rewards.values() for k in scores.pass_at})
        head = ["reward", "n", "mean", *(f"pass@{k}" for k in ks), "interval"]
        lines = []
        for name, scores in self.rewards.items():
            passes = [str(scores.pass_at[k]) if k in scores.pass_at else "-" for k in ks]
            estimates = [each for each in (scores.mean, *scores.pass_at.values()) if each.n]
            methods = sorted({each.method if each.interval else f"n < {LEAST}" for each in estimates})
            lines.append((name, str(scores.mean.n), str(scores.mean), *passes, ", ".join(methods)))
        about = f"{self.n} rows, {self.settings['num_generations']} completion(s) each"
        if self.clipped is not None:
            about += f", {self.clipped:.0%} cut at {self.settings['max_new_tokens']} tokens"
        if self.failures:
            about += f", {len(self.failures)} rows failed and were left out"
        return Table(tuple(head), tuple(lines), f"{about}; [95 %].")

    def table(self) -> str:
        """The summary in Markdown."""
        return self.summary.markdown()

    __str__ = table

    def evaluations(
        self, dataset: str | None = None, metrics: Mapping[str, str] | None = None, **about: Any
    ) -> list[Evaluation]:
        """The means as an adapter's card shows them; those of a `Comparison` also have values before.

        Args:
            dataset: The dataset's name for people. Default: the names of benchmarks, see `from_lmms`.
            metrics: Name of a reward to its name on the card. Default: the same.
            **about: `dataset_id`, `split`, ... of `Evaluation`.
        """
        means = {name: (None, scores.mean) for name, scores in self.rewards.items()}
        return evaluations_of(means, dataset, metrics, about, self.settings.get("benchmarks", {}))

    def passes(self, reward: str, value: float | None) -> bool | None:
        """Whether a value of a reward is right; None where the reward abstains or is graded."""
        least = self.rewards[reward].least
        return None if value is None or least is None else value >= least

    def save(self, path: str | Path) -> None:
        """Write everything as JSON."""
        content = json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False)
        Path(path).write_text(content + "\n", encoding="utf-8")

    def check(self) -> None:
        """Raise a ValueError or KeyError if the parts do not fit each other, as in a damaged file."""
        self.settings["num_generations"]
        for name, scores in self.rewards.items():
            given = [value for values in scores.values for value in values if value is not None]
            if scores.threshold is not None:
                given.append(scores.threshold)
            if not all(isinstance(value, int | float) and math.isfinite(value) for value in given):
                raise ValueError(f"a value of {name} is no finite number")
            if len(scores.values) != len(self.row_ids):
                raise ValueError(f"{name} has {len(scores.values)} rows of {len(self.row_ids)}")

    @classmethod
    def load(cls, path: str | Path) -> "EvaluationResult":
        """Read what `save` wrote.

        Raises:
            ValueError: If the file is something else.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            content["rewards"] = {
                name: RewardScores(tuple(map(tuple, scores["values"])), scores["threshold"])
                for name, scores in content["rewards"].items()
            }
            content["rows"] = tuple(read_row(row) for row in content["rows"])
            content["row_ids"] = tuple(content["row_ids"])
            content["failures"] = {int(index): why for index, why in content["failures"].items()}
            result = cls(**content)
            result.check()
            return result
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} cannot be read ({type(error).__name__}: {error}). Expected the JSON that "
                "EvaluationResult.save wrote."
            ) from error

    def save_html(self, path: str | Path) -> None:
        """Write the kept rows as one HTML file with their images."""
        save_html({"": self.rows}, path, self.summary, self.passes)
