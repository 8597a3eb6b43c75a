"""One image, or one video, as the native processor returns it."""

from dataclasses import dataclass
from typing import Any, Literal

import torch


@dataclass(frozen=True)
class ProcessedImage:
    """One image, or one video, as the native processor returns it.

    Attributes:
        inputs: The processor's outputs for this image alone, named as the model names them.
        replacement: The text that stands for the image in a prompt.
        tokens: Number of placeholder ids in it, that is of image features.
        video: It is a video.
        output: Under which key of `mm_encoder_outputs` the model reads its features, which is also whose
            placeholder ids it has: some models have ids for videos, others write videos as images.
    """

    inputs: dict[str, Any]
    replacement: str
    tokens: int
    video: bool = False
    output: Literal["image", "video"] = "image"

    @property
    def nbytes(self) -> int:
        """Size of the tensors, in bytes."""
        tensors = (value for value in self.inputs.values() if isinstance(value, torch.Tensor))
        return sum(tensor.nbytes for tensor in tensors)
