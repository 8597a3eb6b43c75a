"""Image features of a frozen vision tower, kept from one forward to the next.

A training step needs the features of an image in the rollout, in the old and reference log-probs and
in every update pass. While nothing that made them has changed, they are computed once.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Self

import torch

from .tower_state import TowerState

LIMIT_BYTES = 2 << 30


@dataclass(frozen=True)
class Features:
    """One image's features.

    Attributes:
        pooled: As the model returns them for this image: (pieces, tokens, H) or (tokens, H).
        deep: Further features for the first decoder layers (Qwen3-VL), each (tokens, H).
    """

    pooled: torch.Tensor
    deep: tuple[torch.Tensor, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.pooled.nbytes + sum(tensor.nbytes for tensor in self.deep)


class FeatureCache:
    """Least-recently-used cache from ticket to `Features`, valid for one state of the tower.

    Args:
        limit_bytes: Bound of the features held, on the model's device.

    Attributes:
        encoded: Images that went through the tower so far.
        reused: Images that did not have to: repeats within a forward and hits of the cache.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES):
        self.limit_bytes = limit_bytes
        self.encoded = 0
        self.reused = 0
        self._state: TowerState | None = None
        self._entries: OrderedDict[int, Features] = OrderedDict()
        self._used = 0

    def __deepcopy__(self, memo: dict) -> Self:
        # The copy's weights change on their own.
        return type(self)(self.limit_bytes)

    def __getstate__(self) -> dict:
        return {"limit_bytes": self.limit_bytes}

    def __setstate__(self, state: dict) -> None:
        self.__init__(**state)

    def lookup(self, state: TowerState | None, tickets: list[int]) -> dict[int, Features]:
        """The entries of `tickets` that are valid in `state`; another state empties the cache."""
        if state is None or not state.equals(self._state):
            self._entries.clear()
            self._used = 0
            self._state = state
        found = {ticket: self._entries[ticket] for ticket in tickets if ticket in self._entries}
        for ticket in found:
            self._entries.move_to_end(ticket)
        return found

    def store(self, ticket: int, features: Features) -> None:
        """Keep an image's features for as long as the state of the last `lookup` holds."""
        if self._state is None or features.nbytes > self.limit_bytes:
            return
        # A copy: a view would keep the features of its whole batch alive.
        kept = Features(features.pooled.clone(), tuple(tensor.clone() for tensor in features.deep))
        self._entries[ticket] = kept
        self._used += kept.nbytes
        while self._used > self.limit_bytes:
            self._used -= self._entries.popitem(last=False)[1].nbytes
