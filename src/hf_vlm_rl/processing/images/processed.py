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
        tokens: Number of placeholder ids that stand for it, one for each feature.
        video: True for a video.
        output: The key of `mm_encoder_outputs` under which the model reads its features, and the kind of its
            placeholder ids: some models have ids for videos, others write videos with the ids of images.
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
