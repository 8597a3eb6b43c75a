"""What a video field says: where the video is, and which frames of it are wanted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ImageError

ACCEPTED = (
    "a path, a file:// or http(s):// URL, the bytes of a video file, a uint8 array of shape "
    "(T, H, W, 3) or (T, 3, H, W), a list of frames, or a dict with one of these under 'video'"
)
# Where blocks of messages and dicts hold a video.
PAYLOADS = ("video", "path", "url")
METADATA = "video_metadata"
# What else a block may hold that says nothing of its video.
_BESIDE = frozenset({"type", "text", "image"})


class Video:
    """A video that is not opened yet.

    It is no dataclass: from 5.24 on, transformers makes dicts of the dataclasses that it meets in messages.

    Args:
        source: Whatever `ACCEPTED` lists.
        options: How to sample and process it, as its block says: `fps`, `num_frames`, ...
        metadata: For arrays and lists of frames: fields of transformers' `VideoMetadata`, such as `fps`.
        beside: True for a video from a column of images: its ticket travels beside the ids, not inside.
    """

    def __init__(
        self,
        source: Any,
        options: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        beside: bool = False,
    ):
        self.source, self.options = source, dict(options or {})
        self.metadata, self.beside = metadata, beside

    def carried_beside(self) -> "Video":
        """A copy whose ticket travels beside the ids, in `pixel_values`."""
        return Video(self.source, self.options, self.metadata, beside=True)


@dataclass(frozen=True)
class VideoTicket:
    """A video of a row, in the store; its ticket is `beside` the ids, in `pixel_values`, or inside them."""

    ticket: int
    beside: bool


def is_video(value: Any) -> bool:
    """Whether an entry of an image column is a video: a dict says so with a key `video`."""
    return isinstance(value, Video) or (isinstance(value, Mapping) and value.get("video") is not None)


def as_video(value: Any) -> Video:
    """Read a video field: a `Video`, its source, or a dict with one under one of `PAYLOADS` and options.

    Raises:
        ImageError: If a dict has no video, or several.
    """
    if isinstance(value, Video):
        return value
    if not isinstance(value, Mapping) or value.get("bytes") is not None:
        return Video(value)
    held = [name for name in PAYLOADS if value.get(name) is not None]
    if len(held) != 1:
        raise ImageError(f"Got a video with {held or sorted(map(str, value))}. Expected one of {PAYLOADS}.")
    inner = value[held[0]]
    options = {
        name: option
        for name, option in value.items()
        if option is not None and name not in _BESIDE and name not in PAYLOADS and name != METADATA
    }
    if isinstance(inner, Video):
        return inner
    if isinstance(inner, Mapping) and inner.get("bytes") is None:
        nested = as_video(inner)
        return Video(nested.source, nested.options | options, nested.metadata, nested.beside)
    return Video(inner, options, value.get(METADATA))


def video_in_image_block(block: Mapping[str, Any]) -> Video | None:
    """The video that an image block holds, put there from a column of images; None if it holds none."""
    return as_video(block["image"]).carried_beside() if is_video(block.get("image")) else None
