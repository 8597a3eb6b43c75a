"""The images and videos of a row of a forward."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from .image_features import Features


@dataclass(frozen=True)
class NativeImage:
    """An image that came as pixels.

    Attributes:
        features: What the vision tower made of it.
        inputs: Its own part of the native tensors, by argument name.
        video: False; videos that come as pixels are left to the stock forward.
    """

    features: Features
    inputs: Mapping[str, torch.Tensor]
    video: bool = False


@dataclass(frozen=True)
class RowImages:
    """The images and videos of one row.

    Attributes:
        tickets: In the order of the row's placeholders; for images that came as pixels, a hash of these.
        lengths: Tokens of each image.
        tail: Prompt tokens after the last image token; None if not carried.
        inside: The tickets came inside the ids, from a trainer that knows nothing of images.
        native: For images that came as pixels, what is known of them; None for tickets.
    """

    tickets: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    tail: int | None = None
    inside: bool = False
    native: Mapping[int, NativeImage] | None = None
