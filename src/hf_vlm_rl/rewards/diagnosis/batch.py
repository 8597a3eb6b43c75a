"""What rewards make of a batch of completions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import RowReward
from ..calling import unique_names
from ..completions import text_of
from ..composed import ComposedReward
from ..format import FormatReward
from ..groups import groups_of
from .signs import SILENT, UNREAD

TOTAL = "total"


@dataclass(frozen=True)
class RewardStatistics:
    """One reward over a batch.

    Attributes:
        rows: Rows with a value; the reward abstained from the others.
        mean: Of these values, like the next three; nan where there are none.
        std: Standard deviation.
        low: Smallest value.
        high: Greatest value.
        parse_rate: Share of all completions that the reward can read; None if it has no `parse`.
        flat_groups: Share of the groups (of two rows or more) in which all values are equal; None if there
            are no groups.
    """

    rows: int
    mean: float
    std: float
    low: float
    high: float
    parse_rate: float | None
    flat_groups: float | None


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found; `str()` of it is a table.

    Attributes:
        rows: Number of completions.
        groups: Number of groups of two rows or more.
        rewards: Statistics by the reward's name; then those of the parts of composed ones; last those of the
            weighted sum, as "total".
        warnings: What to look at, in sentences.
    """

    rows: int
    groups: int
    rewards: dict[str, RewardStatistics]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        width = max(map(len, self.rewards))
        head = f"{'reward':{width}}  rows   mean    std    low   high  parsed  flat groups"
        lines = [f"{self.rows} completions, {self.groups} groups", head]
        for name, reward in self.rewards.items():
            shares = (reward.parse_rate, reward.flat_groups)
            parsed, flat = ("-" if share is None else f"{share:.0%}" for share in shares)
            numbers = f"{reward.mean:6.3f} {reward.std:6.3f} {reward.low:6.3f} {reward.high:6.3f}"
            lines.append(f"{name:{width}}  {reward.rows:4d} {numbers}  {parsed:>6}  {flat:>11}")
        return "\n".join([*lines, *(f"! {warning}" for warning in self.warnings)])


def diagnose(
    rewards: Callable | Sequence[Callable],
    completions: list,
    prompts: list | None = None,
    weights: Sequence[float] | None = None,
    num_generations: int | None = None,
    **columns: Any,
) -> Diagnosis:
    """Call rewards on completions, as a trainer would, and say whether a policy could learn from them.

    ```python
    print(diagnose([iou_reward, format_reward], completions, prompts, box=boxes))
    ```

    Args:
        rewards: TRL reward functions.
        completions: B completions: strings or messages, best several of each prompt.
        prompts: Their prompts; completions of one prompt follow each other. Without, there are no groups.
        weights: One factor per reward for the total, default 1.
        num_generations: Size of the groups, if prompts do not tell them; see `groups_of`.
        **columns: What the rewards read, one list of B values each.

    Raises:
        ValueError: If there is no reward or no completion, or numbers do not fit.
        ColumnError: If a reward lacks a column.
    """
    functions = [rewards] if callable(rewards) else list(rewards)
    weights = [1.0] * len(functions) if weights is None else list(weights)
    if not functions or not completions or len(weights) != len(functions):
        raise ValueError(
            f"Got {len(functions)} rewards, {len(weights)} weights and {len(completions)} completions. "
            "Expected one or more of each, and one weight per reward."
        )
    every = functions + _parts(functions)
    names = unique_names(every)
    arguments = columns if prompts is None else columns | {"prompts": prompts}
    table = {
        name: _call(function, name, completions, arguments)
        for name, function in zip(names, every, strict=True)
    }
    groups = [] if prompts is None else groups_of(prompts, columns, num_generations)
    groups = [group for group in groups if len(group) > 1]
    texts = [text_of(completion) for completion in completions]
    rates = [_parse_rate(function, texts) for function in every]
    statistics = {
        name: _statistics(values, rate, groups)
        for (name, values), rate in zip(table.items(), rates, strict=True)
    }
    total = _total(np.stack(list(table.values())[: len(functions)]), weights)
    statistics[TOTAL] = _statistics(total, None, groups)
    return Diagnosis(len(completions), len(groups), statistics, tuple(_warnings(statistics)))


def _parts(functions: list[Callable]) -> list[Callable]:
    """What composed rewards consist of, but for what is there already."""
    every: list[Callable] = []
    for function in functions:
        parts = function.parts if isinstance(function, ComposedReward) else ()
        every += [part for part in parts if part not in functions + every]
    return every


def _call(function: Callable, name: str, completions: list, columns: Mapping[str, Any]) -> np.ndarray:
    values = list(function(completions=completions, **columns))
    if len(values) != len(completions):
        raise ValueError(
            f"{name} returned {len(values)} values for {len(completions)} completions. Expected one for "
            "each, a number or None."
        )
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _total(table: np.ndarray, weights: list[float]) -> np.ndarray:
    total = np.nansum(table * np.array(weights)[:, None], axis=0)
    return np.where(np.isnan(table).all(axis=0), np.nan, total)


def _parse_rate(function: Callable, texts: list[str]) -> float | None:
    if not isinstance(function, RowReward | FormatReward):
        return None
    return sum(function.parse(text) is not None for text in texts) / len(texts)


def _statistics(values: np.ndarray, rate: float | None, groups: list[range]) -> RewardStatistics:
    counted = values[~np.isnan(values)]
    in_groups = [group[~np.isnan(group)] for group in (values[list(rows)] for rows in groups)]
    spreads = [np.ptp(group) for group in in_groups if len(group) > 1]
    some = counted if counted.size else np.array([np.nan])
    mean, deviation, least, most = map(float, (some.mean(), some.std(), some.min(), some.max()))
    flat = float(np.mean(np.isclose(spreads, 0, atol=1e-9))) if spreads else None
    return RewardStatistics(int(counted.size), mean, deviation, least, most, rate, flat)


def _warnings(statistics: Mapping[str, RewardStatistics]) -> list[str]:
    warnings = []
    for name, reward in statistics.items():
        if not reward.rows:
            warnings.append(f"{name} abstained from every row.")
        elif reward.low == reward.high and reward.rows > 1:
            warnings.append(f"{name} is {reward.low:g} everywhere: nothing can be learned from it here.")
        if reward.parse_rate is not None and reward.parse_rate < UNREAD:
            warnings.append(
                f"{name} can read {reward.parse_rate:.0%} of the completions: its low values are about form. "
                "Say the form in the prompt, warm up with SFT, or add FormatReward(partial=True)."
            )
    flat = statistics[TOTAL].flat_groups
    if flat is None:
        warnings.append(
            "No group of two completions or more: pass prompts, with several completions of each."
        )
    elif flat > SILENT:
        warnings.append(
            f"In {flat:.0%} of the groups all completions get the same total: they give no gradient. Take "
            "harder or easier prompts, more generations, a higher temperature, or partial credit."
        )
    return warnings
