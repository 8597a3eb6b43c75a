"""Decoded images are converted to RGB by the native image processor itself.

Families differ in what they do with transparency, grey images and layouts of arrays. Their image processors
convert each image first (`process_image`) and leave an RGB image as it is, so that the result can stand for
the image in the store.
"""

from typing import Any

import numpy as np
import PIL.Image
import torch

from ...compat import stock_rgb
from ...errors import ImageError
from .read import UINT8


def native_rgb(image_processor: Any, asked: bool | None, image: Any) -> PIL.Image.Image:
    """Convert an image to a new one in RGB, as an image processor's call does.

    `asked` is `do_convert_rgb` as the native processor passes it; None leaves it to the image processor.
    `image` is a PIL image, or a numpy/torch array.

    Raises:
        ImageError: If the image processor refuses it, or makes other pixels of it than 3 channels of 8 bits.
    """
    if isinstance(image, PIL.Image.Image) and image.mode == "RGB" and "transparency" not in image.info:
        return image.copy()
    # Image processors that are remote code may lack it.
    convert = getattr(image_processor, "do_convert_rgb", None) if asked is None else asked
    try:
        pixels = _channels_first(image_processor, image, convert)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ImageError(f"{type(image_processor).__name__} refuses {_kind(image)}: {error}") from error
    if pixels.dtype not in (np.uint8, torch.uint8):
        raise ImageError(
            f"Got {_kind(image)}. The store of images holds 8 bits a channel, and native image processors "
            f"divide floats in [0, 1] by 255 once more. {UINT8}"
        )
    if pixels.ndim != 3 or len(pixels) != 3:
        raise ImageError(
            f"Got {_kind(image)}, of which {type(image_processor).__name__} with do_convert_rgb={convert} "
            f"makes pixels of shape {tuple(pixels.shape)}. Expected one image with 3 channels: "
            "image.convert('RGB')."
        )
    return PIL.Image.fromarray(np.ascontiguousarray(np.moveaxis(np.asarray(pixels), 0, -1)))


def _channels_first(image_processor: Any, image: Any, convert: bool | None) -> np.ndarray | torch.Tensor:
    """Pixels of shape (C, H, W) if `image` is one image."""
    try:
        pixels = image_processor.process_image(image, do_convert_rgb=convert)
    except (AttributeError, NotImplementedError):  # older classes convert by this function
        rgb = stock_rgb(image) if convert else image
        return np.moveaxis(np.asarray(rgb), -1, 0)
    return pixels.detach().cpu() if isinstance(pixels, torch.Tensor) else pixels


def _kind(image: Any) -> str:
    if isinstance(image, PIL.Image.Image):
        return f"an image of mode {image.mode!r}"
    return f"an array of {str(image.dtype).removeprefix('torch.')} and shape {tuple(image.shape)}"
