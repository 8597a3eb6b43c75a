"""What a ticket stands for: an image, and what was noted about its row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import PIL.Image

from ...errors import TicketError


@dataclass(frozen=True)
class RowNote:
    """What is known about an encoded prompt besides its ids.

    Attributes:
        columns: The dataset columns that the caller passed to `encode_prompt`.
        prompt: The messages, their image blocks empty; None if not recorded.
        tail: Prompt tokens after the last image token; None if not recorded.
    """

    columns: Mapping[str, Any] = field(default_factory=dict)
    prompt: list[dict] | None = None
    tail: int | None = None


@dataclass(frozen=True)
class StoredVideo:
    """The sampled frames of a video, each an image of the store.

    Attributes:
        ticket: A hash of frames and metadata.
        frames: Tickets of the T frames, in order.
        metadata: The fields of transformers' `VideoMetadata`: `total_num_frames` and `fps` of the clip, which
            frames of it these are (`frames_indices`), `duration` in seconds, `width` and `height`.
    """

    ticket: int
    frames: tuple[int, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StoredImage(RowNote):
    """What a ticket stands for: an image or a video, and the note of the row that it was encoded with.

    Attributes:
        image: Upright RGB image, or a video.
        options: Image-processor options that differ from the processor's own (`{}`: none do).
    """

    image: PIL.Image.Image | StoredVideo
    options: Mapping[str, Any] = field(default_factory=dict)


def as_json(note: dict[str, Any]) -> bytes:
    """A note as it is written and hashed: equal notes are equal bytes.

    Raises:
        TicketError: If its columns, options or messages cannot be written as JSON.
    """
    try:
        return json.dumps(note, sort_keys=True, ensure_ascii=False).encode()
    except TypeError as error:
        raise TicketError(
            f"The columns {sorted(note['columns'])}, options {sorted(note.get('options', {}))} and the "
            f"messages must be JSON values (str, int, float, bool, None, lists, dicts): {error}."
        ) from error
