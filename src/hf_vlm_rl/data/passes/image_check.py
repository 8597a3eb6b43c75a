"""Images in rows as `datasets.Image` stores them, and whether their files are there."""

import io
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import PIL.Image
from datasets import Image

from ...errors import DataError, ImageError
from ...processing.images.formats import open_image
from ...processing.images.options import options_of
from ...processing.images.read import check_pixels
from ...processing.images.reference import Reference, is_url, parse, payload

_SEEN = 1 << 16  # files whose state is remembered; bounds the memory
_THREADS = 8


@dataclass(frozen=True)
class ImageRoot:
    """Where relative paths of images begin (absolute); whether they may lead out, and have `options`."""

    path: str
    outside: bool = False
    options: bool = False

    def stored(self, value: Any) -> Reference:
        """What an image field of a row says, as `datasets.Image` stores it.

        `value` is what `processing.images.reference.parse` takes; in datasets also a PIL image.

        Raises:
            DataError: If it is no image, has options, or leads out of the folder.
        """
        try:
            if not self.options and (options := options_of(value)):
                raise DataError(
                    f"an image has {sorted(options)}; a column of images holds no options of single ones. "
                    "Expected an image alone; set them for all in from_pretrained"
                )
            image = payload(value) if isinstance(value, Mapping) and value.get("bytes") is None else value
            if isinstance(image, PIL.Image.Image):
                return Image().encode_example(image)
            reference = parse(value)
            if isinstance(value, Mapping) and "://" in (reference["path"] or ""):
                return reference  # a file of the Hub or in an archive, which `datasets` opens
        except ImageError as error:
            raise DataError(str(error)) from error
        path = reference["path"]
        if path is None or reference["bytes"] is not None or is_url(path) or os.path.isabs(path):
            return reference
        inside = os.path.normpath(path) if ".." in path and not self.outside else path
        if inside.split(os.sep)[0] == os.pardir and not self.outside:
            raise DataError(
                f"the image {path[:200]!r} leads out of {self.path!r}; expected a path below that folder, or "
                "an absolute one; image_folder=... chooses the folder, and outside_images=True allows it"
            )
        return {"path": os.path.join(self.path, inside), "bytes": None}


class ImageCheck:
    """Looks whether image files are there, each path once; the next looks anew.

    With `verify` it decodes the files, too, several at once.
    """

    def __init__(self, exist: bool, verify: bool):
        self.exist, self.verify = exist or verify, verify
        _is_there.cache_clear()
        _unreadable.cache_clear()

    def __call__(self, references: Iterable[Iterable[Reference]]) -> list[str | None]:
        """What is wrong with the first bad image of each row; None if nothing is."""
        rows = [list(row) for row in references]
        if not self.exist:
            return [None] * len(rows)
        if self.verify:
            files = {path for row in rows for image in row if (path := _file(image))}
            with ThreadPoolExecutor(_THREADS) as threads:
                list(threads.map(_unreadable, files))  # what it says is remembered
        return [next(filter(None, map(self._fault, row)), None) for row in rows]

    def _fault(self, image: Reference) -> str | None:
        if path := _file(image):
            return _unreadable(path) if self.verify else _missing(path)
        if self.verify and image["bytes"] is not None:
            name = "of a data: URL" if image["path"] is None else repr(image["path"])
            return _undecodable(io.BytesIO(image["bytes"]), name)
        return None


def _file(reference: Reference) -> str | None:
    path = reference["path"]
    return None if path is None or reference["bytes"] is not None or is_url(path) else path


@lru_cache(_SEEN)
def _is_there(path: str) -> bool:
    return os.path.isfile(path)


def _missing(path: str) -> str | None:
    if _is_there(path):
        return None
    return f"there is no image file {path!r}; check the folder that paths are relative to (image_folder)"


@lru_cache(_SEEN)
def _unreadable(path: str) -> str | None:
    return _missing(path) or _undecodable(path, repr(path))


def _undecodable(source: Any, name: str) -> str | None:
    try:
        with open_image(source) as opened:
            check_pixels(opened, "it")
            opened.load()  # which finds files that were cut off
            return None
    except Exception as error:  # PIL's formats raise whatever their parsers meet
        return f"the image {name} cannot be read: {error}"
