"""The size of an image from its file's header, upright, without decoding pixels."""

import io
import struct
from typing import IO, Any

import PIL.ExifTags
import PIL.Image
from PIL.PngImagePlugin import PngImageFile

from ...errors import ImageError
from .formats import open_image
from .read import load_rgb
from .reference import is_url, parse

# Formats whose header says all that decides the size; the others are decoded.
HEADER_FORMATS = frozenset(("JPEG", "MPO", "PNG", "WEBP", "BMP", "GIF"))
# EXIF orientations that exchange width and height.
_TURNED = frozenset((5, 6, 7, 8))
# Chunks of a PNG with text, and the keywords with which PIL reads EXIF from them.
_TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt"))
_EXIF_TEXTS = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")
_KEYWORD = max(map(len, _EXIF_TEXTS))


def image_size(image: Any, fetch: bool = True) -> tuple[int, int]:
    """Width and height, in pixels, that `load_rgb` would give.

    Only arrays, images at http(s) addresses and formats without a clear header are decoded, so a file with a
    good header and broken pixels passes. Without `fetch`, images at http(s) addresses are errors.

    Raises:
        ImageError: If there is no such file, or it is no image.
    """
    if isinstance(image, PIL.Image.Image):
        return image.size
    source = _file_of(image, fetch)
    if source is not None:
        try:
            with open_image(source) as opened:
                size = _upright(opened)
        except Exception:  # PIL's parsers raise anything; `load_rgb` below explains it
            size = None
        if size is not None:
            return size
    return load_rgb(image).size


def _file_of(image: Any, fetch: bool) -> str | IO[bytes] | None:
    try:
        reference = parse(image)
    except ImageError:  # an array, or nothing that `load_rgb` takes either
        return None
    if reference["bytes"] is not None:
        return io.BytesIO(reference["bytes"])
    if not is_url(reference["path"]):
        return reference["path"]
    if not fetch:
        raise ImageError(f"The image {reference['path'][:200]!r} is not here. Expected an image or its file.")
    return None


def _upright(opened: PIL.Image.Image) -> tuple[int, int] | None:
    """The size after EXIF rotation; None if only decoding can tell."""
    if opened.format not in HEADER_FORMATS:
        return None
    if isinstance(opened, PngImageFile) and opened.fp is not None and _has_late_exif(opened.fp):
        return None
    # Not PngImageFile's own getexif, which decodes the pixels to see what follows them.
    return _turned(opened, PIL.Image.Image.getexif(opened))


def _turned(image: PIL.Image.Image, exif: PIL.Image.Exif) -> tuple[int, int]:
    turned = exif.get(PIL.ExifTags.Base.Orientation) in _TURNED
    return (image.height, image.width) if turned else image.size


def _has_late_exif(file: IO[bytes]) -> bool:
    """Whether a PNG has metadata on its orientation after its pixels."""
    file.seek(8)
    pixels = False
    while len(head := file.read(8)) == 8:
        length, name = struct.unpack(">I4s", head)
        pixels |= name == b"IDAT"
        start = file.read(min(length, _KEYWORD))
        if pixels and (name == b"eXIf" or (name in _TEXTS and start.startswith(_EXIF_TEXTS))):
            return True
        file.seek(length - len(start) + 4, io.SEEK_CUR)
    return False
