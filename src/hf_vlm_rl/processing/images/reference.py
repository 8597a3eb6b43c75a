"""What an image field says: a path, a URL, or bytes."""

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import PIL.Image
from datasets import Image

from ...errors import DataError

# {"path", "bytes"} as `datasets.Image` stores it: a path or URL, or the bytes of a data: URL.
Reference = dict[str, Any]


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
