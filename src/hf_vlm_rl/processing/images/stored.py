"""What a ticket stands for: an image, and what was noted about its row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import PIL.Image


@dataclass(frozen=True)
class StoredImage:
    """What a ticket stands for.

    Attributes:
        image: Upright RGB image.
        options: Image-processor options that differ from the processor's own (`{}`: none do).
        columns: The dataset columns that `encode_prompt` attached to the row.
        tail: Number of prompt tokens after the row's last image token, if recorded.
        prompt: The row's messages, their image blocks empty, if recorded.
    """

    image: PIL.Image.Image
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    tail: int | None = None
    prompt: list[dict] | None = None


@dataclass(frozen=True)
class RowNote:
    """What is known about an encoded prompt besides its ids.

    Attributes:
        columns: The dataset columns that `encode_prompt` was given.
        prompt: The messages, their image blocks empty; None if not recorded.
        tail: Prompt tokens after the last image token; None if not recorded.
    """

    columns: Mapping[str, Any]
    prompt: list[dict] | None = None
    tail: int | None = None
