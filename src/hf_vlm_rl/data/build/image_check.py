"""References to images in rows, as what `datasets.Image` stores, and whether their files are there."""

import base64
import binascii
import io
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import PIL.Image
from datasets import Image

from ...errors import DataError
from ...processing.images.reference import (
    Reference,
    _PAYLOADS,
    resolve,
    _at,
    _data_url,
)

_SEEN = 1 << 16  # files whose state is remembered; bounds the memory
_THREADS = 8


class ImageCheck:
    """Looks whether image files are there, each path once.

    Args:
        exist: Look for the files.
        verify: Read their headers, too, several files at once.
    """

    def __init__(self, exist: bool, verify: bool):
        self.exist, self.verify = exist or verify, verify

    def __call__(self, references: Iterable[Iterable[Reference]]) -> list[str | None]:
        """What is wrong with the first bad image of each row; None if nothing is."""
        rows = [list(row) for row in references]
        if not self.exist:
            return [None] * len(rows)
        if self.verify:
            files = {path for row in rows for each in row if (path := _file(each))}
            with ThreadPoolExecutor(_THREADS) as threads:
                found = dict(zip(files, threads.map(_unreadable, files), strict=True))
            look = found.__getitem__
        else:
            look = _missing
        return [self._first(row, look) for row in rows]

    def _first(self, row: list[Reference], look: Callable[[str], str | None]) -> str | None:
        for each in row:
            wrong = None
            if path := _file(each):
                wrong = look(path)
            elif self.verify and each["bytes"] is not None:
                wrong = _undecodable(io.BytesIO(each["bytes"]), "of a data: URL")
            if wrong is not None:
                return wrong
        return None


def _file(reference: Reference) -> str | None:
    path = reference["path"]
    return None if path is None or path[:8].lower().startswith(("http://", "https://")) else path


@lru_cache(_SEEN)
def _is_there(path: str) -> bool:
    return os.path.isfile(path)


def _missing(path: str) -> str | None:
    if _is_there(path):
        return None
    return f"there is no image file {path!r}; check image_folder (check_images=False does not look)"


@lru_cache(_SEEN)
def _unreadable(path: str) -> str | None:
    return _missing(path) or _undecodable(path, repr(path))


def _undecodable(source: Any, name: str) -> str | None:
    try:
        with PIL.Image.open(source):
            return None
    except Exception as error:  # PIL's formats raise whatever their parsers meet
        return f"the image {name} cannot be read: {error}"
