"""What became of the rewards in a run, from the trainer's log."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .signs import SILENT_GROUPS, signs_of

_MEAN = re.compile(r"rewards/(.+)/mean")
_LEAST_ENTRIES = 8


@dataclass(frozen=True)
class Trend:
    """A reward's mean at both ends of a run.

    Attributes:
        first: Mean over the first quarter of the log.
        last: Mean over the last quarter.
        noise: Standard error of their difference.
    """

    first: float
    last: float
    noise: float

    @property
    def rose(self) -> bool:
        """By more than twice the noise, and by 0.02."""
        return self.last - self.first > max(2 * self.noise, 0.02)

    @property
    def fell(self) -> bool:
        """By more than twice the noise, and by 0.02."""
        return self.first - self.last > max(2 * self.noise, 0.02)

    @property
    def full(self) -> bool:
        """Near 1, the top of most rewards."""
        return self.last >= 0.95


@dataclass(frozen=True)
class RunDiagnosis:
    """What `diagnose_history` found; `str()` of it is a table.

    Attributes:
        trends: By the reward's name.
        warnings: What to look at, in sentences.
    """

    trends: dict[str, Trend]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{name}: {trend.first:.3f} -> {trend.last:.3f} (noise {trend.noise:.3f})"
            for name, trend in self.trends.items()
        ]
        return "\n".join([*lines, *(f"! {warning}" for warning in self.warnings)])


def diagnose_history(log_history: Sequence[Mapping[str, Any]]) -> RunDiagnosis:
    """Look for the commonest failure: format goes to 1 and accuracy stays flat.

    ```python
    print(diagnose_history(trainer.state.log_history))
    ```

    Args:
        log_history: `trainer.state.log_history` of GRPO, RLOO or PPO with `RewardFunctionModel`; entries
            without `rewards/<name>/mean` are passed over.

    Raises:
        ValueError: If there are fewer than 8 entries with rewards.
    """
    means: dict[str, list[float]] = {}
    for entry in log_history:
        for key, value in entry.items():
            match = _MEAN.fullmatch(key)
            # None where every row of every batch abstained.
            if match and value is not None and np.isfinite(value):
                means.setdefault(match[1], []).append(float(value))
    trends = {name: _trend(values) for name, values in means.items() if len(values) >= _LEAST_ENTRIES}
    if not trends:
        longest = max(map(len, means.values()), default=0)
        raise ValueError(
            f"Got a log with {longest} entries of rewards/<name>/mean. Expected {_LEAST_ENTRIES} or more: "
            "train on, or lower logging_steps."
        )
    return RunDiagnosis(trends, tuple(_warnings(trends, log_history)))


def _trend(values: list[float]) -> Trend:
    quarter = len(values) // 4
    first, last = np.array(values[:quarter]), np.array(values[-quarter:])
    noise = np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / quarter)
    return Trend(float(first.mean()), float(last.mean()), float(noise))


def _warnings(trends: Mapping[str, Trend], log_history: Sequence[Mapping[str, Any]]) -> list[str]:
    flat = [name for name, trend in trends.items() if not trend.rose and not trend.full]
    warnings = [
        f"{full} went from {trend.first:.2f} to {trend.last:.2f} while {name} stayed at "
        f"{trends[name].last:.2f}: the policy learned the form, not the task. Look at completions; make "
        f"{full} a gate (compose) or lower its weight; see with diagnose() whether {name} varies in groups."
        for full, trend in trends.items()
        if trend.full and trend.rose
        for name in flat
    ]
    warnings += [
        f"{name} fell from {trend.first:.2f} to {trend.last:.2f}."
        for name, trend in trends.items()
        if trend.fell
    ]
    of_groups = [entry for entry in log_history if SILENT_GROUPS in entry]
    last = of_groups[-max(len(of_groups) // 4, 1) :]
    warnings += [f"In the last quarter, {sign}" for sign in signs_of(last).values()]
    return warnings
