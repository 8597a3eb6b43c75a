"""A byte-bounded cache: of images, of what was computed from them, and of notes about them."""

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ByteBoundedCache(Generic[Key, Value]):
    """Least-recently-used cache; threads may share it, and a forked child may go on using it.

    A copy, by `copy.deepcopy` or `pickle`, begins empty. The newest value always stays, whatever the bound.
    `before_drop` is called with key and value before one is dropped for want of room, while `get` still finds
    it. If it raises, the value stays and `put` raises.
    """

    def __init__(
        self,
        limit_bytes: int,
        nbytes: Callable[[Value], int],
        before_drop: Callable[[Key, Value], None] | None = None,
    ):
        self.limit_bytes = limit_bytes
        self._size_of = nbytes
        self._before_drop = before_drop
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self.after_fork()
        _live.add(self)

    def __reduce__(self) -> tuple:
        return type(self), (self.limit_bytes, self._size_of, self._before_drop)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    @property
    def nbytes(self) -> int:
        """Size of the values held, in bytes."""
        return self._nbytes

    def get(self, key: Key) -> Value | None:
        """The value, which then counts as used last; None if there is none."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Key, value: Value) -> Value:
        """Keep a value, and drop the least recently used ones beyond the bound.

        Returns the value that the key has now: an older one stays in place of `value`.
        """
        size = self._size_of(value)
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key][0]
            self._entries[key] = value, size
            self._nbytes += size
        while (oldest := self._oldest_beyond_bound()) is not None:
            # Not under the lock: this may take as long as a disk takes.
            if self._before_drop is not None:
                self._before_drop(*oldest)
            self.discard(oldest[0])
        return value

    def discard(self, key: Key) -> None:
        """Drop a value, if it is held, without calling `before_drop`."""
        with self._lock:
            if key in self._entries:
                self._nbytes -= self._entries.pop(key)[1]

    def clear(self) -> None:
        """Drop all values, without calling `before_drop`."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0

    def after_fork(self) -> None:
        """Begin anew in a forked child, where the threads that held the lock or were counting are gone."""
        self._lock = threading.Lock()
        self._nbytes = sum(size for _, size in self._entries.values())

    def _oldest_beyond_bound(self) -> tuple[Key, Value] | None:
        with self._lock:
            if self._nbytes <= self.limit_bytes or len(self._entries) < 2:
                return None
            key, (value, _) = next(iter(self._entries.items()))
            return key, value


_live: "weakref.WeakSet[ByteBoundedCache]" = weakref.WeakSet()


def _after_fork() -> None:
    for cache in _live:
        cache.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)
