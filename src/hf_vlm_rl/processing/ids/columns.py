"""Writes the images of a dataset's row into its texts, as marks."""

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import ImageError
from ..conversation import fill_images, normalize
from ..images.options import with_image_options
from ..images.reference import column_images
from ..images.store import ImageStore
from ..stored_rows import IMAGE_COLUMNS

NO_VIDEOS = (
    "Texts carry images alone. Expected text and image blocks; videos go to trainers of encode_prompt, and "
    "to those that take policy.processing_class."
)


# The key under which the store keeps the options of an image in a text, as its block names them.
ASKED_OPTIONS = "asked"


def image_of(store: ImageStore, ticket: int) -> Any:
    """The image that a ticket stands for, with the options that its block or dict asked for.

    Raises:
        ImageError: If its image was processed with options that no block can ask for.
    """
    stored = store.get(ticket)
    options = dict(stored.options)
    asked = options.pop(ASKED_OPTIONS, {})
    options.pop("alone", None)  # `put_images` sets it anew
    if options:
        raise ImageError(
            f"An image in these ids was processed with {options}, which a text cannot carry. Expected rows "
            "of with_tickets, whose texts carry what an image asks for, or the processor's own settings."
        )
    return with_image_options(stored.image, asked)


def carry(row: Mapping[str, Any], mark: Callable[[Any], str], placeholder: str) -> dict[str, Any]:
    """The columns of a row that hold texts, with a mark in the place of each image.

    The images of a column go into the prompt; without a prompt column, into each column that begins with it.
    `placeholder` stands for one image in a prompt that is a string.

    Raises:
        ImageError: If images and places differ in number.
    """
    if row.get("video") or row.get("videos"):
        raise ImageError(f"Got a column of videos. {NO_VIDEOS}")
    images = column_images(row)
    texts = {name: value for name, value in row.items() if name not in IMAGE_COLUMNS}
    heads = _heads(texts) if images else ()
    if images and not heads:
        raise ImageError(
            f"Got {len(images)} images and no prompt to put them in; the columns are {sorted(row)}. Expected "
            "TRL's: prompt, messages, or chosen and rejected."
        )
    return {
        name: _column(value, images if name in heads else [], mark, placeholder)
        for name, value in texts.items()
    }


def _heads(texts: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that begin with the prompt."""
    for names in (("prompt",), ("messages",), ("chosen", "rejected", "reference"), ("text",)):
        heads = tuple(name for name in names if texts.get(name) is not None)
        if heads:
            return heads
    return ()


def _column(value: Any, images: list, mark: Callable[[Any], str], placeholder: str) -> Any:
    if isinstance(value, str):
        return _in_text(value, images, mark, placeholder) if images else value
    if not _is_conversation(value):
        return value
    messages = fill_images(value, images) if images else normalize([value])[0][0]
    return [
        message
        if message.get("content") is None
        else message | {"content": _joined(message["content"], mark)}
        for message in messages
    ]


def _in_text(text: str, images: list, mark: Callable[[Any], str], placeholder: str) -> str:
    first, *others = text.split(placeholder)
    if len(others) != len(images):
        raise ImageError(
            f"The text has {len(others)} placeholders ({placeholder!r}) and {len(images)} images. Expected "
            "one for each image, or a conversation."
        )
    return first + "".join(mark(image) + part for image, part in zip(images, others, strict=True))


def _joined(content: list[Mapping[str, Any]], mark: Callable[[Any], str]) -> str:
    parts = []
    for block in content:
        if block.get("type") == "image":
            if "image" not in block:
                raise ImageError(
                    "An image block has no image. Expected the image in the block, or a column of images."
                )
            parts.append(mark(block["image"]))
        elif block.get("type") == "text":
            parts.append(block.get("text") or "")
        else:
            raise ImageError(f"Got a block of type {block.get('type')!r}. {NO_VIDEOS}")
    return "".join(parts)


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and "role" in value[0]
