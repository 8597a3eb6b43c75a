"""Turn whatever users call an image into an RGB `PIL.Image`, as stock transformers would."""

import io
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps

from ...errors import ImageError
from .fetch import fetch
from .formats import FORMATS, is_foreign, open_image
from .reference import is_stored, is_url, parse, payload

CHANNELS = (1, 3, 4)
PIXELS_VARIABLE = "HF_VLM_RL_MAX_IMAGE_PIXELS"
# 256 MiB of RGB, from where on PIL itself warns. A PNG of 20 kB may hold more.
MAX_IMAGE_PIXELS = (256 << 20) // 3
UINT8 = "Expected uint8 in [0, 255]: of floats in [0, 1], (array * 255).round() as uint8."


def by_transformers(image: Any) -> PIL.Image.Image:
    """Convert an image to RGB as transformers does outside of any model: on white (5.20 drops transparency).

    An array has the shape (H, W), (H, W, C) or (C, H, W) with C in {1, 3, 4}, and holds uint8.

    Raises:
        ImageError: If an array has another shape or another type.
    """
    if is_array(image):
        image = _from_array(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        return image.copy()
    from ...compat import stock_rgb  # takes seconds to import

    return PIL.Image.fromarray(np.asarray(stock_rgb(image)))


def load_rgb(image: Any, to_rgb: Callable[[Any], PIL.Image.Image] = by_transformers) -> PIL.Image.Image:
    """Decode `image` and convert it to RGB.

    A file is read as transformers' `load_image` reads it: turned as its EXIF orientation says, and converted
    by `convert("RGB")`, which drops transparency. An image that is decoded already goes to `to_rgb` as it is,
    as into a native processor's call: its EXIF orientation is not applied.

    Args:
        image: A PIL image; `str` or `Path` of a file; `file://`, `data:` or `http(s)://` URL; encoded
            `bytes`; a dict that holds one of these; or a numpy/torch array. What `datasets.Image` stores (a
            dict of `bytes` and `path`) is first decoded as `datasets` does it: turned upright, in its mode.
        to_rgb: Gives a new RGB image of a PIL image or an array.

    Returns:
        A new RGB image of at least 1 x 1 pixels. The input is left as it was.

    Raises:
        ImageError: If the file is missing, truncated or no image, or the value is of another kind; before
            anything is decoded, if it has more than `max_image_pixels()` pixels.
    """
    if isinstance(image, Mapping) and not is_stored(image):
        inner = payload(image)  # a dict of options may hold a decoded image
        image = image if inner is None else inner
    try:
        if is_array(image):
            rgb = to_rgb(image)
            check_pixels(rgb, _describe(image))
        else:
            decoded = isinstance(image, PIL.Image.Image)
            opened = image if decoded else _open(image)
            _check_format(opened, image)
            check_pixels(opened, _describe(image))
            upright = opened if decoded else PIL.ImageOps.exif_transpose(opened)
            rgb = to_rgb(upright) if decoded or is_stored(image) else upright.convert("RGB")
    except ImageError:
        raise
    except Exception as error:  # PIL's formats raise whatever their parsers meet
        raise ImageError(
            f"Cannot decode {_describe(image)}: {error}. Expected a complete image file; "
            "check or re-create the file."
        ) from error
    if rgb.width == 0 or rgb.height == 0:
        raise ImageError(
            f"{_describe(image)} is {rgb.width} x {rgb.height} pixels. Expected at least 1 x 1; "
            "remove the row or fix the crop that made it."
        )
    return rgb


def is_array(image: Any) -> bool:
    """Whether `image` is a numpy array or a torch tensor."""
    torch = sys.modules.get("torch")  # whoever has a tensor has imported it
    return isinstance(image, np.ndarray) or (torch is not None and isinstance(image, torch.Tensor))


def max_image_pixels() -> int:
    """The most pixels that an image may have: `$HF_VLM_RL_MAX_IMAGE_PIXELS`, else `MAX_IMAGE_PIXELS`.

    It is at most what PIL reads, twice `PIL.Image.MAX_IMAGE_PIXELS`: the store could not read more.

    Raises:
        ImageError: If the variable is no number above 0.
    """
    limit = os.environ.get(PIXELS_VARIABLE, str(MAX_IMAGE_PIXELS))
    if not limit.isdecimal() or int(limit) == 0:
        raise ImageError(f"Got {PIXELS_VARIABLE}={limit!r}. Expected a whole number of pixels above 0.")
    return (
        int(limit) if PIL.Image.MAX_IMAGE_PIXELS is None else min(int(limit), 2 * PIL.Image.MAX_IMAGE_PIXELS)
    )


def check_pixels(opened: PIL.Image.Image, name: str) -> None:
    """Refuse an image, by its header, that is larger than `max_image_pixels()`.

    Raises:
        ImageError: If it has too many pixels.
    """
    limit = max_image_pixels()
    if opened.width * opened.height > limit:
        raise ImageError(
            f"{name} has {opened.width} x {opened.height} pixels, more than {limit}; each takes 3 bytes "
            f"or more once decoded. Make it smaller, drop the row, or raise {PIXELS_VARIABLE} and, "
            "for an image of which PIL warns, PIL.Image.MAX_IMAGE_PIXELS."
        )


def _check_format(opened: PIL.Image.Image, image: Any) -> None:
    if is_foreign(opened):
        raise ImageError(
            f"{_describe(image)} is {opened.format}. Expected one of {', '.join(FORMATS)}; convert the file."
        )


def _open(image: Any) -> PIL.Image.Image:
    reference = parse(image)
    if reference["bytes"] is not None:
        return _open_bytes(reference["bytes"], "the data URL" if isinstance(image, str) else None)
    path = reference["path"]
    return _open_bytes(fetch(path), f"the body of {path[:200]!r}") if is_url(path) else _open_path(Path(path))


def _open_path(path: Path) -> PIL.Image.Image:
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ImageError(
            f"Cannot read the image file {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}. "
            "Expected the path of an image file; check the path and its permissions."
        ) from error
    return _open_bytes(data, name=f"the file {str(path)!r}")


def _open_bytes(data: bytes, name: str | None = None) -> PIL.Image.Image:
    try:
        return open_image(io.BytesIO(data))
    except PIL.Image.DecompressionBombError as error:  # far more than is allowed here
        raise ImageError(
            f"{name or f'{len(data)} bytes'}: {error} Make the image smaller, drop the row, or raise "
            f"PIL.Image.MAX_IMAGE_PIXELS and {PIXELS_VARIABLE}."
        ) from error
    except Exception as error:  # as in `load_rgb`
        why = str(error).partition(" <")[0]  # PIL names our buffer, whose address says nothing
        raise ImageError(
            f"{name or f'{len(data)} bytes'}: not an image that PIL can read ({why}). Expected an image "
            f"encoded as one of {', '.join(FORMATS)}."
        ) from error


def _from_array(array: Any) -> PIL.Image.Image:
    if str(array.dtype).removeprefix("torch.") != "uint8":
        raise ImageError(f"Got an image array of dtype {array.dtype}. {UINT8}")
    array = array if isinstance(array, np.ndarray) else array.cpu().numpy()
    shape = array.shape
    if array.ndim == 2:
        array = array[:, :, None]
    elif array.ndim == 3 and shape[2] not in CHANNELS and shape[0] in CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in CHANNELS or 0 in shape:
        raise ImageError(
            f"Got an image array of shape {shape}. Expected (H, W), (H, W, C) or (C, H, W) with "
            f"C in {CHANNELS} and no empty side."
        )
    array = np.ascontiguousarray(array)
    return PIL.Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def _describe(image: Any) -> str:
    if isinstance(image, Mapping):
        # Stored bytes may have come with the name of their file.
        image = payload(image) if image.get("bytes") is None else image.get("path") or image
    if is_array(image):
        return f"an image array of shape {tuple(image.shape)}"
    if isinstance(image, str | os.PathLike):
        longest = 80 if str(image).startswith("data:") else 200  # a path says most at its end
        return f"the image {str(image)[:longest]!r}"
    return f"an image given as {type(image).__name__}"
