"""Conversations as files write them, as messages of blocks with the images in place."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import DataError
from ..processing.images.reference import Reference, resolve

ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}
IMAGE = {"type": "image", "text": None}


def text_block(text: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": text}


class Marks:
    """A mark in a text that stands for an image, such as `<image>`.

    A line break on either side belongs to the mark: chat templates separate images and text themselves.
    """

    def __init__(self, mark: str):
        if not mark:
            raise ValueError("Got an empty image mark. Expected a string such as '<image>'.")
        self.mark = mark
        self.pattern = re.compile(rf"(?:\r?\n)?{re.escape(mark)}(?:\r?\n)?")

    def blocks(self, text: str) -> list[dict[str, Any]]:
        """The text in blocks, with an image block for each mark."""
        blocks = []
        for position, piece in enumerate(self.pattern.split(text)):
            if position:
                blocks.append(IMAGE)
            if piece:
                blocks.append(text_block(piece))
        return blocks


class Turns:
    """The messages of a row, and the images found inside them.

    Args:
        marks: What stands for an image in texts of users and the system.
        folder: Paths of images are relative to it.
    """

    def __init__(self, marks: Marks, folder: str):
        self.marks, self.folder = marks, folder
        self.messages: list[dict[str, Any]] = []
        self.images: list[Reference | None] = []  # None for a place without an image of its own

    def add(self, role: Any, content: Any) -> None:
        """Add a message.

        Raises:
            DataError: If the role is unknown or the content neither a string nor blocks.
        """
        known = ROLES.get(role) if isinstance(role, str) else None
        if known is None:
            raise DataError(f"{self._turn()} is said by {role!r}; expected one of {sorted(ROLES)}")
        if isinstance(content, str):
            if self.marks.mark not in content:
                blocks = [text_block(content)]
            elif known == "assistant":
                raise DataError(
                    f"{self._turn()} (assistant) contains {self.marks.mark!r}; expected it in what the user "
                    "says: answers have no images"
                )
            else:
                blocks = self.marks.blocks(content)
                self.images += [None] * blocks.count(IMAGE)
        elif isinstance(content, list):
            blocks = [self._block(block, known) for block in content]
        else:
            raise DataError(
                f"{self._turn()} has the content {str(content)[:80]!r}; expected a string or blocks"
            )
        self.messages.append({"role": known, "content": blocks})

    def _turn(self) -> str:
        return f"turn {len(self.messages)}"

    def place(self, images: Sequence[Reference]) -> list[Reference]:
        """The images of the row in the order of their blocks.

        Args:
            images: From the row's column. Without any block for an image they go before the first text
                of the first user.

        Raises:
            DataError: If there is not one image per empty block.
        """
        empty = self.images.count(None)
        if images and not self.images:
            user = next((turn for turn in self.messages if turn["role"] == "user"), None)
            if user is None:
                raise DataError(f"{len(images)} image(s), but no turn of a user to put them in")
            user["content"] = [IMAGE] * len(images) + user["content"]
            return list(images)
        if empty != len(images):
            raise DataError(
                f"{empty} place(s) for images in the text ({self.marks.mark!r} or image blocks), but "
                f"{len(images)} image(s); expected one per place, or no place at all"
            )
        given = iter(images)
        return [next(given) if each is None else each for each in self.images]

    def _block(self, block: Any, role: str) -> dict[str, Any]:
        if isinstance(block, str):
            return text_block(block)
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text" and isinstance(block.get("text"), str):
            return text_block(block["text"])
        if kind in ("image", "image_url"):
            if role == "assistant":
                raise DataError(f"{self._turn()} (assistant) has an image block; answers have no images")
            payload = {name: value for name, value in block.items() if name != "type" and value is not None}
            self.images.append(resolve(payload, self.folder) if payload else None)
            return IMAGE
        raise DataError(
            f"{self._turn()} has the block {str(block)[:80]!r}; expected {{'type': 'text', 'text': ...}} or "
            "{'type': 'image', ...}"
        )


def plain(messages: Iterable[Mapping[str, Any]]) -> str:
    """The text of messages, for answers."""
    return "".join(block["text"] for message in messages for block in message["content"])


def column_images(row: Mapping[str, Any], folder: str) -> list[Reference]:
    """The images that stand in a row's `image` or `images`.

    Raises:
        DataError: If both are there, or one is no image.
    """
    given = [row[name] for name in ("image", "images") if row.get(name) is not None]
    if len(given) > 1:
        raise DataError("both 'image' and 'images' are given; expected one of them")
    if row.get("video") is not None or row.get("videos") is not None:
        raise DataError("the row has a video; expected images or text")
    if not given:
        return []
    images = given[0] if isinstance(given[0], list) else [given[0]]
    return [resolve(image, folder) for image in images]
