"""A byte-bounded cache of preprocessed images, and what one of them is."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class ProcessedImage:
    """One image as the native image processor returns it.

    Attributes:
        inputs: The processor's outputs for this image alone, named as the model names them.
        replacement: The text that stands for the image in a prompt.
        tokens: Number of placeholder ids in it, that is of image features.
    """

    inputs: dict[str, Any]
    replacement: str
    tokens: int

    @property
    def nbytes(self) -> int:
        """Size of the tensors, in bytes."""
        tensors = (value for value in self.inputs.values() if isinstance(value, torch.Tensor))
        return sum(tensor.nbytes for tensor in tensors)


class ImageCache:
    """Least-recently-used cache of `ProcessedImage`.

    Args:
        limit_bytes: Bound of the tensors held, in bytes. The newest entry always stays.
    """

    def __init__(self, limit_bytes: int):
        self.limit_bytes = limit_bytes
        self._entries: OrderedDict[tuple[int, str], ProcessedImage] = OrderedDict()
        self._used = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: tuple[int, str]) -> ProcessedImage | None:
        """The entry, or None."""
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: tuple[int, str], entry: ProcessedImage) -> None:
        """Add an entry and drop the least recently used ones beyond the bound."""
        if key in self._entries:
            return
        self._entries[key] = entry
        self._used += entry.nbytes
        while self._used > self.limit_bytes and len(self._entries) > 1:
            self._used -= self._entries.popitem(last=False)[1].nbytes
