"""What an image field says: a path, a URL, or bytes; nothing is opened, and nothing large imported."""

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any, TypedDict
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ...errors import ImageError

ACCEPTED = (
    "a PIL image, a path, a file://, data: or http(s):// URL, encoded bytes, "
    'a {"bytes", "path"} dict as `datasets` yields, or a uint8 (H, W, 3) array'
)
# Keys under which dicts and blocks of messages hold an image.
PAYLOADS = ("image", "path", "url", "image_url", "base64")


class EncodedReference(TypedDict):
    """An image that is not decoded, and whose bytes, the encoded file, are known; its path may be, too."""

    path: str | None
    bytes: bytes


class PathReference(TypedDict):
    """An image that has to be read from a path or an http(s) URL."""

    path: str
    bytes: None


# An image that is not decoded, as `datasets.Image` stores it.
Reference = EncodedReference | PathReference


def parse(value: Any, folder: str = "") -> Reference:
    """Read an image field, without opening anything.

    It is a `str` or `Path` of a file, relative to `folder`; a `file://`, `data:` or `http(s)://` URL; encoded
    bytes; or a dict with `bytes`, or with one of these under one of `PAYLOADS`.

    Raises:
        ImageError: If it is something else, also if it is an image already (of PIL, an array).
    """
    if isinstance(value, Mapping):
        if value.get("bytes") is not None:
            return {"path": value.get("path"), "bytes": _encoded(value["bytes"])}
        image = payload(value)
        if image is None:
            raise ImageError(
                f"Got an image dict with keys {sorted(map(str, value))} and neither 'bytes' nor 'path' set. "
                'Expected {"bytes": ..., "path": ...} as `datasets.Image` stores it.'
            )
        return parse(image, folder)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"path": None, "bytes": bytes(value)}
    if isinstance(value, os.PathLike):
        return {"path": os.path.join(folder, value), "bytes": None}
    if not isinstance(value, str) or not value:
        kind = "an empty string as an image" if value == "" else f"an image of type {type(value).__name__}"
        none = " A row without an image has images=[]." if value is None else ""
        raise ImageError(f"Got {kind}. Expected {ACCEPTED}.{none}")
    if is_url(value):
        return {"path": value, "bytes": None}
    scheme, colon, _ = value[:8].partition(":")
    if colon and scheme.lower() == "data":
        return {"path": None, "bytes": _data(value)}
    path = url2pathname(urlsplit(value).path) if colon and scheme.lower() == "file" else value
    return {"path": os.path.join(folder, path), "bytes": None}


def payload(fields: Mapping[str, Any]) -> Any:
    """What a dict or a block of a message holds under one of `PAYLOADS`; None if it holds nothing.

    Raises:
        ImageError: If it holds several.
    """
    held = {name: fields[name] for name in PAYLOADS if fields.get(name) is not None}
    if len(held) > 1:
        raise ImageError(f"Got an image with {list(held)}. Expected one of them.")
    for name, value in held.items():
        if name == "base64" and isinstance(value, str) and not value.startswith("data:"):
            return f"data:image;base64,{value}"
        inner = payload(value) if isinstance(value, Mapping) and not is_stored(value) else None
        return value if inner is None else inner
    return None


def is_stored(value: Any) -> bool:
    """Whether `value` is what `datasets.Image` stores: a dict of `bytes` and `path`, one of which is set."""
    if not isinstance(value, Mapping) or "bytes" not in value:
        return False
    return value["bytes"] is not None or value.get("path") is not None


def is_url(path: str) -> bool:
    """Whether an image has to be fetched."""
    return path[:6].partition(":")[0].lower() in ("http", "https") and ":" in path[:6]


def is_image_list(value: Any) -> bool:
    """Whether `value` is a list of images rather than one image."""
    return isinstance(value, list | tuple)


def as_list(images: Any) -> list:
    """The images of a column: None, one image, or a list of them."""
    if images is None:
        return []
    return list(images) if is_image_list(images) else [images]


def column_images(row: Mapping[str, Any]) -> list:
    """The images of a row in TRL's columns: those of `images`, else of `image`, as TRL reads them."""
    return as_list(row["images"] if row.get("images") is not None else row.get("image"))


def _encoded(data: Any) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ImageError(
            f"Got an image with bytes of type {type(data).__name__}: a bytes-like object is required. "
            "Expected the content of an image file."
        )
    return bytes(data)


def _data(url: str) -> bytes:
    header, _, content = url.partition(",")
    if ";base64" not in header:
        raise ImageError(f"Got the data URL {url[:40]!r}. Expected data:image/...;base64,<data>.")
    try:
        # MIME wraps base64 in lines.
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: not ASCII
        raise ImageError(f"The data URL {url[:40]!r} is not valid base64: {error}.") from error
