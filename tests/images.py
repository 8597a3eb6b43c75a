"""Photographs that come with scikit-image's wheel, at the sizes tests ask for."""

from functools import lru_cache

import numpy as np
from PIL import Image
from skimage import data

# Only those whose files are in the wheel: the rest of ``skimage.data`` is downloaded.
_COLOUR = (
    "astronaut",
    "cat",
    "coffee",
    "colorwheel",
    "hubble_deep_field",
    "immunohistochemistry",
    "retina",
    "rocket",
)
_GREY = ("brick", "camera", "clock", "coins", "grass", "gravel", "moon", "page", "text")

PHOTOS: tuple[str, ...] = (*_COLOUR, "motorcycle", *_GREY)


@lru_cache
def _original(name: str) -> Image.Image:
    if name not in PHOTOS:
        raise ValueError(f"no photo {name!r}; there are {', '.join(PHOTOS)}")
    pixels = data.stereo_motorcycle()[0] if name == "motorcycle" else getattr(data, name)()
    return Image.fromarray(np.asarray(pixels, dtype=np.uint8)).convert("RGB")


def photo(name: str, size: tuple[int, int] | None = None) -> Image.Image:
    """An RGB photo; with ``size`` (width, height) its largest centred crop of that shape."""
    original = _original(name)
    if size is None:
        return original.copy()
    width, height = size
    scale = min(original.width / width, original.height / height)
    left = (original.width - width * scale) / 2
    top = (original.height - height * scale) / 2
    box = (left, top, left + width * scale, top + height * scale)
    return original.resize(size, Image.Resampling.BICUBIC, box=box)
