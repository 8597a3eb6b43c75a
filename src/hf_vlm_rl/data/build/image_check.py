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

# {"path", "bytes"} as `datasets.Image` stores it: a path or URL, or the bytes of a data: URL.
Reference = dict[str, Any]
_SEEN = 1 << 16  # files whose state is remembered; bounds the memory
_THREADS = 8
_PAYLOADS = ("image", "path", "url", "image_url", "base64")


def resolve(value: Any, folder: str) -> Reference:
    """What an image field says.

    Args:
        value: A path (relative to `folder`, or absolute), a `file://`, `http(s)://` or `data:` URL, or a
            dict with one of these under `image`, `path`, `url` or `image_url`, or base64 under `base64`; in
            datasets also a PIL image, encoded bytes, or a dict with `bytes`.
        folder: Absolute.

    Raises:
        DataError: If it is something else.
    """
    if isinstance(value, str) and value:
        scheme, colon, _ = value[:8].partition(":")
        match scheme.lower() if colon else "":
            case "http" | "https":
                return _at(value)
            case "file":
                return _at(url2pathname(urlsplit(value).path))
            case "data":
                return _data_url(value)
        return _at(os.path.join(folder, value))
    if isinstance(value, PIL.Image.Image | bytes):
        return Image().encode_example(value)
    if isinstance(value, Mapping):
        if isinstance(value.get("bytes"), bytes):
            return {"path": value.get("path"), "bytes": value["bytes"]}
        given = [name for name in _PAYLOADS if value.get(name) is not None]
        if given == ["base64"] and isinstance(value["base64"], str):
            data = value["base64"]
            return resolve(data if data.startswith("data:") else f"data:image;base64,{data}", folder)
        if len(given) == 1:
            return resolve(value[given[0]], folder)
    raise DataError(
        f"an image is {str(value)[:80]!r}; expected a path, a URL, or a dict with one of {list(_PAYLOADS)}"
    )


def _at(path: str) -> Reference:
    return {"path": path, "bytes": None}


def _data_url(url: str) -> Reference:
    header, _, payload = url.partition(",")
    if not header.endswith(";base64"):
        raise DataError(f"an image is {url[:40]!r}; expected data:image/...;base64,<data>")
    try:
        return {"bytes": base64.b64decode("".join(payload.split()), validate=True), "path": None}
    except binascii.Error as error:
        raise DataError(f"the data URL {url[:40]!r} is not base64: {error}") from None


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
