"""Several rewards as one."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .base import Reward


@dataclass(frozen=True)
class ComposedReward(Reward):
    """Several rewards as one: a weighted sum or a product, maybe behind a gate; see `compose`.

    Columns: those of its parts.
    Range: for a sum, from the sum of the weighted least to that of the weighted greatest values; for a
        product, that of the products.
    Malformed: what the parts make of it.

    Args:
        rewards: The parts; this and the others are the arguments of `compose`.
        weights: One factor per part; for a product, ones.
        how: "sum" or "product".
        gate: A further reward, or None.
        closed: The reward of a row that the gate stops.
    """

    rewards: tuple[Callable, ...]
    weights: tuple[float, ...]
    how: Literal["sum", "product"] = "sum"
    gate: Callable | None = None
    closed: float = 0.0

    @property
    def parts(self) -> tuple[Callable, ...]:
        """The rewards and the gate."""
        return self.rewards if self.gate is None else (*self.rewards, self.gate)

    def __call__(self, completions: list, **columns: Any) -> list[float | None]:
        """One number per completion; parts that abstain from a row do not count; if all do, it is None."""
        parts = [reward(completions=completions, **columns) for reward in self.rewards]
        rows = [self._combined(values) for values in zip(*parts, strict=True)]
        if self.gate is None:
            return rows
        gates = self.gate(completions=completions, **columns)
        return [
            self.closed if value is not None and gate is not None and gate < 1 else value
            for value, gate in zip(rows, gates, strict=True)
        ]

    def _combined(self, values: tuple[float | None, ...]) -> float | None:
        pairs = zip(values, self.weights, strict=True)
        weighted = [value * weight for value, weight in pairs if value is not None]
        if not weighted:
            return None
        return math.prod(weighted) if self.how == "product" else sum(weighted)


def compose(
    *rewards: Callable,
    weights: Sequence[float] | None = None,
    how: Literal["sum", "product"] = "sum",
    gate: Callable | None = None,
    closed: float = 0.0,
    name: str = "",
) -> ComposedReward:
    """Several reward functions as one, with a `__name__`, picklable if its parts are.

    ```python
    compose(iou_reward, format_reward, weights=[1.0, 0.2])
    compose(iou_reward, gate=format_reward)  # no format, no reward
    ```

    Trainers weigh and log rewards that are passed one by one; compose where one must depend on another.

    Args:
        *rewards: TRL reward functions.
        weights: One factor per reward, for a sum; default 1.
        how: "sum" or "product".
        gate: A reward function; rows to which it gives less than 1 get `closed`.
        closed: See `gate`.
        name: The name in logs. Default: the parts' names, joined.

    Raises:
        TypeError: If a part is not callable.
        ValueError: If there is no reward, or weights do not fit.
    """
    parts = [*rewards, *([] if gate is None else [gate])]
    for part in parts:
        if not callable(part):
            raise TypeError(
                f"Got {part!r} as a reward. Expected functions; pass them one by one, not as a list."
            )
    if not rewards or how not in ("sum", "product"):
        raise ValueError(
            f"Got {len(rewards)} rewards and how={how!r}. Expected one or more; 'sum' or 'product'."
        )
    if weights is not None and (how == "product" or len(weights) != len(rewards)):
        raise ValueError(
            f"Got {len(weights)} weights for {len(rewards)} rewards and how={how!r}. Expected one per "
            "reward of a sum, and none for a product."
        )
    # Partial functions and objects of users' own classes have no name.
    names = [getattr(part, "__name__", type(part).__name__) for part in rewards]
    return ComposedReward(
        tuple(rewards),
        tuple(weights) if weights is not None else (1.0,) * len(rewards),
        how,
        gate,
        closed,
        name=name or {"sum": "_plus_", "product": "_times_"}[how].join(names),
    )
