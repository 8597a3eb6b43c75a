"""What is to be said of an image file: whether it decodes, its size, whether EXIF turns it."""

import hashlib
import io
import os
import stat
from dataclasses import dataclass

import PIL.Image

from ..errors import ImageError
from ..processing.images.formats import open_image
from ..processing.images.read import check_pixels
from ..processing.images.reference import Reference

_ORIENTATION = 0x0112  # EXIF's tag


@dataclass(frozen=True)
class ImageFacts:
    """What was seen of an image.

    Attributes:
        digest: 16 bytes, equal for files with the same bytes; empty if there is no file.
        fault: "missing", "unreadable", "huge" or "truncated"; None if it decodes.
        reason: What is wrong, or how EXIF turns it.
        rotated: Whether EXIF turns or mirrors it, so that boxes drawn on the stored pixels miss.
    """

    digest: bytes
    fault: str | None = None
    reason: str = ""
    rotated: bool = False


def digest_of(data: bytes) -> bytes:
    """16 bytes that tell contents apart."""
    return hashlib.blake2b(data, digest_size=16).digest()


def image_facts(reference: Reference) -> ImageFacts:
    """Decode an image that is a file or bytes. Nothing is raised: whatever is wrong is in the facts."""
    data, path = reference["bytes"], reference["path"]
    if data is None:
        try:
            if not stat.S_ISREG(os.stat(path or "").st_mode):  # a pipe would be waited for
                return ImageFacts(b"", "unreadable", "it is a folder or a device, and no file")
            with open(path or "", "rb") as file:
                data = file.read()
        except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a zero byte in the path
            return ImageFacts(b"", "missing", "there is no such file")
        except OSError as error:
            return ImageFacts(b"", "unreadable", error.strerror or str(error))
    digest = digest_of(data)
    if not data:
        return ImageFacts(digest, "unreadable", "the file is empty")
    try:
        opened = open_image(io.BytesIO(data))
        check_pixels(opened, "it")
    except (ImageError, PIL.Image.DecompressionBombError) as error:
        return ImageFacts(digest, "huge", str(error))
    except Exception as error:  # PIL's formats raise whatever their parsers meet
        return ImageFacts(digest, "unreadable", f"no image that is read ({str(error).partition(' <')[0]})")
    width, height = opened.size
    try:
        turn = opened.getexif().get(_ORIENTATION, 1)
        opened.load()
    except Exception as error:  # as above
        return ImageFacts(
            digest,
            "truncated",
            f"cut off or damaged: not all of its {width} x {height} pixels decode ({error})",
        )
    if turn in range(2, 9):
        reason = f"its EXIF orientation is {turn}; boxes have to be those of the upright image"
        return ImageFacts(digest, None, reason, rotated=True)
    return ImageFacts(digest)
