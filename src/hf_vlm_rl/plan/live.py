"""Counts the bytes of the tensors that are alive, and their peak; the tensors may be on any device."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts every storage that is made in its context, until it is freed.

    Attributes:
        live: Bytes that are alive.
        peak: Largest value of `live` so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._known: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run an operation and count what it made."""
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, counted=False)  # made before: weights, inputs
        output = func(*args, **kwargs or {})
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, counted=True)
        return output

    def _see(self, tensor: torch.Tensor, counted: bool) -> None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes() if counted else 0
        self._known[key] = weakref.ref(storage, lambda _: self._freed(key, size))
        self.live += size
        self.peak = max(self.peak, self.live)

    def _freed(self, key: int, size: int) -> None:
        del self._known[key]
        self.live -= size
