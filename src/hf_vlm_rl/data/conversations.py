"""Conversations as files write them: messages of blocks with the images in place, prompts and answers."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DataError
from ..processing.images.reference import Reference, as_list
from .passes.column_types import Kind
from .passes.image_check import ImageRoot
from .passes.options import Options

ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}
IMAGE = {"type": "image", "text": None}
# Marks of ms-swift and LLaMA-Factory that would stay in the text as they are.
_FOREIGN_MARKS = {
    "<bbox>": "stands for a box of the field 'objects'; expected the box itself, as the model writes it",
    "<ref-object>": "stands for a name of the field 'objects'; expected the name itself",
    "<audio>": "stands for a sound; expected images and text",
    "<video>": "stands for a video; expected images and text",
}


def text_block(text: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": text}


@functools.cache
def _pattern(mark: str) -> re.Pattern:
    return re.compile(rf"(?:\r?\n)?{re.escape(mark)}(?:\r?\n)?")


class Turns:
    """The messages of a row, and the images found inside them.

    Args:
        mark: Stands for an image in texts of users and the system, such as `<image>`. A line break on either
            side belongs to it: chat templates separate images and text themselves.
        folder: Paths of images are relative to it.

    Raises:
        ValueError: If the mark is empty.
    """

    def __init__(self, mark: str, folder: ImageRoot):
        if not mark:
            raise ValueError("Got an empty image mark. Expected a string such as '<image>'.")
        self.mark, self.folder = mark, folder
        self.messages: list[dict[str, Any]] = []
        self.images: list[Reference | None] = []  # None for a place without an image of its own

    def add(self, role: Any, content: Any) -> None:
        """Add a message.

        Raises:
            DataError: If the role is unknown or the content neither a string nor blocks.
        """
        speaker = ROLES.get(role) if isinstance(role, str) else None
        if speaker is None:
            raise DataError(f"{self._turn()} is said by {role!r}; expected one of {sorted(ROLES)}")
        if isinstance(content, str):
            if self.mark not in content:
                blocks = [text_block(content)]
            elif speaker == "assistant":
                raise DataError(
                    f"{self._turn()} (assistant) contains {self.mark!r}; expected it in what the user "
                    "says: answers have no images"
                )
            else:
                blocks = self._marked(content)
        elif isinstance(content, list):
            blocks = [self._block(block, speaker) for block in content]
        else:
            raise DataError(f"{self._turn()} has the content {content!r:.80}; expected a string or blocks")
        for block in blocks:
            self._refuse_foreign_marks(block["text"] or "")
        self.messages.append({"role": speaker, "content": blocks})

    def extend(self, messages: Any, name: str) -> None:
        """Add messages, each with `role` and `content` or with `from` and `value`.

        Raises:
            DataError: If the field `name` holds something else.
        """
        if not isinstance(messages, list) or not messages:
            raise DataError(f"{name!r} is {messages!r:.80}; expected a list of messages")
        for position, message in enumerate(messages):
            fields = message if isinstance(message, Mapping) else {}
            if len(fields) > 2:
                fields = {key: value for key, value in fields.items() if value is not None}
            if len(fields) == 2 and "role" in fields and "content" in fields:
                self.add(fields["role"], fields["content"])
            elif len(fields) == 2 and "from" in fields and "value" in fields:
                self.add(fields["from"], fields["value"])
            else:
                raise DataError(
                    f"{name}[{position}] is {message!r:.120}; expected {{'role': ..., 'content': ...}} "
                    "and nothing else"
                )

    def _refuse_foreign_marks(self, text: str) -> None:
        for mark, meaning in _FOREIGN_MARKS.items():
            if mark in text and mark.replace("<", "</") not in text:  # with an end it is markup
                raise DataError(f"{self._turn()} contains {mark!r}, which in other formats {meaning}")

    def _turn(self) -> str:
        return f"turn {len(self.messages)}"

    def place(self, images: Sequence[Reference]) -> list[Reference]:
        """The images of the row in the order of their blocks.

        Without any block for an image, those of the row's column go before the first text of the first user.

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
                f"{empty} place(s) for images in the text ({self.mark!r} or image blocks), but "
                f"{len(images)} image(s); expected one per place, or no place at all"
            )
        unplaced = iter(images)
        return [next(unplaced) if image is None else image for image in self.images]

    def _marked(self, text: str) -> list[dict[str, Any]]:
        """The text in blocks, with an image block for each mark."""
        first, *others = _pattern(self.mark).split(text)
        self.images += [None] * len(others)
        blocks = [text_block(first), *(block for piece in others for block in (IMAGE, text_block(piece)))]
        return [block for block in blocks if block["text"] != ""]

    def _block(self, block: Any, role: str) -> dict[str, Any]:
        if isinstance(block, str):
            return text_block(block)
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text" and isinstance(block.get("text"), str):
            return text_block(block["text"])
        if kind in ("image", "image_url"):
            if role == "assistant":
                raise DataError(f"{self._turn()} (assistant) has an image block; answers have no images")
            fields = {name: value for name, value in block.items() if name != "type" and value is not None}
            self.images.append(self.folder.stored(fields) if fields else None)
            return IMAGE
        raise DataError(
            f"{self._turn()} has the block {block!r:.80}; expected {{'type': 'text', 'text': ...}} or "
            "{'type': 'image', ...}"
        )


@dataclass(frozen=True)
class ConversationReader:
    """What readers of conversations share; paths of images are relative to `folder`, which is absolute."""

    folder: str
    options: Options

    @functools.cached_property
    def root(self) -> ImageRoot:
        """Where paths of images begin."""
        return ImageRoot(self.folder, self.options.outside_images)

    @functools.cached_property
    def kinds(self) -> dict[str, Kind]:
        """prompt, images, and the answer as asked for."""
        kinds = {"prompt": "messages", "images": "images"}
        if self.options.answer is not None:
            kinds[self.options.answer] = "unanswered"
        return kinds | ({"completion": "messages"} if self.options.completion else {})

    def started(self, messages: Any, record: Mapping[str, Any], name: str) -> Turns:
        """The turns of a record's messages.

        They begin with a system message: their own, the record's field `system`, as LLaMA-Factory means it
        (an empty one says nothing), or that of the options.

        Raises:
            DataError: If it is no list of messages, the field `system` is no string or not the only system
                message, or the record has ms-swift's other half of a pair.
        """
        for field in ("rejected_response", "rejected_messages"):
            if record.get(field) is not None and field not in self.options.drop:
                raise DataError(
                    f"the row has {field!r}, as ms-swift writes pairs; expected 'prompt', 'chosen' and "
                    f"'rejected', or drop=[{field!r}]"
                )
        system = None if "system" in self.options.drop else record.get("system")
        if system and (not isinstance(system, str) or _has_system(messages)):
            raise DataError(
                f"the row has the field 'system' ({system!r:.80}) besides its messages; expected a "
                "string, and no system message among them, or drop=['system']"
            )
        system = system or self.options.system
        turns = Turns(self.options.image_mark, self.root)
        if system is not None and not _has_system(messages):
            turns.add("system", system)
        turns.extend(messages, name)
        return turns

    def answered(self, value: Any, name: str) -> list[dict[str, Any]]:
        """The messages of a completion: a string, or messages that begin with the assistant's.

        Raises:
            DataError: If it is something else, or has images.
        """
        turns = Turns(self.options.image_mark, self.root)
        turns.extend([{"role": "assistant", "content": value}] if isinstance(value, str) else value, name)
        if turns.images or turns.messages[0]["role"] != "assistant":
            raise DataError(
                f"{name!r} begins with the {turns.messages[0]['role']} and has {len(turns.images)} image(s); "
                "expected the assistant, and images only in the prompt"
            )
        return turns.messages

    def images(self, record: Mapping[str, Any]) -> list[Reference]:
        """The images that stand in a record's `image` or `images`.

        Raises:
            DataError: If both are there, or one is no image.
        """
        filled = [record[name] for name in ("image", "images") if record.get(name) is not None]
        if len(filled) > 1:
            raise DataError("both 'image' and 'images' are given; expected one of them")
        if record.get("video") is not None or record.get("videos") is not None:
            raise DataError("the row has a video; expected images or text")
        return [self.root.stored(image) for images in filled for image in as_list(images)]

    def split(self, turns: Turns, images: list[Reference]) -> dict[str, Any]:
        """The columns of a conversation: what was said up to the last turn of the user, and what came after.

        Raises:
            DataError: If there is no user; if more than one turn, or another than the assistant's, follows
                the last of the user; if images and places differ; if a completion is asked for and there is
                none.
        """
        placed = turns.place(images)
        messages = turns.messages
        questions = [position for position, turn in enumerate(messages) if turn["role"] == "user"]
        if not questions:
            raise DataError(f"no turn of a user; expected one of {[r for r in ROLES if ROLES[r] == 'user']}")
        prompt, rest = messages[: questions[-1] + 1], messages[questions[-1] + 1 :]
        if len(rest) > 1 or (rest and rest[0]["role"] != "assistant"):
            raise DataError(
                f"after the last turn of the user come {[turn['role'] for turn in rest]}; expected one "
                "answer of the assistant at most"
            )
        if self.options.completion and not rest:
            raise DataError("the conversation ends with the user; expected an answer, for the completion")
        columns = {"prompt": prompt, "images": placed}
        if self.options.answer is not None:
            answer = "".join(block["text"] for block in rest[0]["content"]) if rest else None
            columns[self.options.answer] = answer
        return columns | ({"completion": rest} if self.options.completion else {})


def _has_system(messages: Any) -> bool:
    """Whether a list of messages begins with one of the system."""
    first = messages[0] if isinstance(messages, list) and messages else None
    return isinstance(first, Mapping) and first.get("role", first.get("from")) == "system"
