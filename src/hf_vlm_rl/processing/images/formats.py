"""The image formats that are read, and the one place that opens image files."""

import functools
from typing import IO, Any

import PIL.Image

# Of what Pillow reads, the formats of photographs, scans and screenshots, each decoded within the process.
# Its reader of EPS would start Ghostscript, those of WMF and HDF5 hand files to other programs, and a file's
# name says nothing of its format. HEIF is read where `pillow_heif` has registered it.
FORMATS = (
    *("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "HEIF", "JPEG2000"),
    *("MPO", "PPM", "QOI", "PCX", "ICO", "TGA"),  # TGA has no signature: it is tried last
)


def open_image(source: str | IO[bytes]) -> PIL.Image.Image:
    """`PIL.Image.open`, for files of `FORMATS` alone; pixels are not decoded yet.

    Raises:
        OSError: If there is no such file, or it is of no such format. PIL's parsers may raise other errors.
    """
    return PIL.Image.open(source, formats=_registered())


def suffixes() -> dict[str, str]:
    """Suffixes of files, such as `.jpg`, to their format, for those in `FORMATS`."""
    return {suffix: name for suffix, name in PIL.Image.registered_extensions().items() if name in FORMATS}


def is_foreign(image: Any) -> bool:
    """Whether a PIL image was opened by a reader of another format; an image made in memory has none."""
    return image.format is not None and image.format not in FORMATS


def _registered() -> list[str]:
    _initialized()
    return [name for name in FORMATS if name in PIL.Image.OPEN]  # a build of Pillow may lack AVIF


@functools.cache
def _initialized() -> None:
    PIL.Image.init()
