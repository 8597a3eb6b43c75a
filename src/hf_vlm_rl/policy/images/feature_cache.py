"""Image features of a frozen vision tower, kept from one forward to the next.

A training step needs the features of an image in the rollout, in the old and reference log-probs and
in every update pass. While nothing that made them has changed, they are computed once.
"""

import operator
import threading

from ...processing.images.lru import ByteBoundedCache
from .image_features import Features
from .tower_state import TowerState

LIMIT_BYTES = 2 << 30


class FeatureCache:
    """Least-recently-used cache from ticket to `Features`, for one state of the tower; bounded in bytes.

    `encoded` images went through the tower so far, `reused` ones did not have to: repeats within a forward
    and hits of the cache.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES):
        self.encoded = 0
        self.reused = 0
        self._lock = threading.Lock()
        self._generation = 0
        self._state: TowerState | None = None
        self._features: ByteBoundedCache[int, Features] = ByteBoundedCache(
            limit_bytes, operator.attrgetter("nbytes")
        )

    def __getstate__(self) -> dict:
        # A copy's weights may change without the original's, so its cache begins empty.
        return {"limit_bytes": self.limit_bytes}

    def __setstate__(self, state: dict) -> None:
        FeatureCache.__init__(self, **state)

    @property
    def limit_bytes(self) -> int:
        """Bound of the features held, in bytes; 0 switches the cache off."""
        return self._features.limit_bytes

    @limit_bytes.setter
    def limit_bytes(self, limit: int) -> None:
        self._features.limit_bytes = limit

    @property
    def nbytes(self) -> int:
        """Size of the features held, in bytes."""
        return self._features.nbytes

    def clear(self) -> None:
        """Drop all features; `encoded` and `reused` stay."""
        self._features.clear()

    def lookup(self, state: TowerState | None, tickets: list[int]) -> tuple[dict[int, Features], int]:
        """The entries of `tickets` that are valid in `state`; another state empties the cache.

        Returns:
            The entries by ticket, and the number that `store` takes for features computed in this state.
        """
        with self._lock:
            if state is None or not state.equals(self._state):
                self.clear()
                self._state = state
                self._generation += 1
            generation = self._generation
        held = {ticket: self._features.get(ticket) for ticket in tickets}
        return {ticket: features for ticket, features in held.items() if features is not None}, generation

    def store(self, entries: dict[int, Features], generation: int) -> dict[int, Features]:
        """Count and return newly encoded images; keep them unless `lookup` has seen another state since."""
        with self._lock:  # no other state may come between the comparison and the last feature
            self.encoded += len(entries)
            valid_entries = entries if self._state is not None and generation == self._generation else {}
            for ticket, features in valid_entries.items():
                if features.nbytes <= self.limit_bytes:
                    # A copy: a view would keep the features of its whole batch alive.
                    self._features.put(ticket, features.clone())
        return entries
