"""Which images are the same: those whose files have the same bytes."""

import functools
import hashlib
from typing import Any

from ..errors import DataError
from ..processing.images.reference import is_url
from .passes.image_check import ImageRoot

_HASH = functools.partial(hashlib.blake2b, digest_size=16)


class ContentHash:
    """Images, as datasets store them, to hashes of their encoded bytes; each file is read once."""

    def __init__(self) -> None:
        self._of_file = functools.cache(_of_file)

    def __call__(self, image: Any) -> bytes:
        """The hash of an image.

        Args:
            image: A path, a `file://`, `data:` or http(s) URL (which counts by its address), encoded bytes,
                or a {"bytes", "path"} dict.

        Returns:
            16 bytes.

        Raises:
            DataError: If its file cannot be read, or it is something else.
        """
        stored = ImageRoot("", outside=True).stored(image)
        if stored["bytes"] is not None:
            return digest(stored["bytes"])
        path = stored["path"]
        return digest("address", path) if is_url(path) else self._of_file(path)


def digest(*parts: str | bytes) -> bytes:
    """A hash of 16 bytes; of one `bytes`, that of a file with this content."""
    hashed = _HASH()
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else f"{part}\0".encode("utf-8", "surrogatepass"))
    return hashed.digest()


def _of_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, _HASH).digest()
    except OSError as error:
        raise DataError(
            f"Cannot read the image file {path[:200]!r}: {error.strerror or error}. Check the path, "
            "or drop the row."
        ) from error
