"""One image as the native image processor returns it."""

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
