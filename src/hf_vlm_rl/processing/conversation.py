"""Conversations as users and datasets write them, brought into the one form templates expect."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import DataError, ImageError
from .images.options import options_of, with_image_options
from .images.reference import payload
from .videos.request import PAYLOADS as VIDEO_PAYLOADS
from .videos.request import Video, as_video, is_video, video_in_image_block

LLAVA_MARK = "<image>"
_EXPECTED = (
    'messages such as {"role": "user", "content": "..."}, whose content is a text or a list of blocks such '
    'as {"type": "text", "text": "..."}'
)
# Roles whose texts a model or a tool writes: a placeholder in them is no mistake of the user's.
WRITTEN = ("assistant", "tool")
# Behind the first character of a placeholder, it makes a text that looks the same and is no placeholder.
_WORD_JOINER = "\u2060"


def normalize(conversation: Sequence) -> tuple[list[list[dict]], bool]:
    """Copy one conversation or a batch of them into block form.

    Strings become text blocks. An image moves to the key `image` of its block, as a dict with its options if
    it has any; None fields, which Arrow adds, are dropped. A block without an image keeps its options. A
    video moves to the key `video`; an image block that holds a video becomes a video block. The second value
    says whether `conversation` was a batch.

    Raises:
        DataError: If it is no list of messages, each with a role and with a text or blocks.
    """
    conversation = list(_listed(conversation, "messages"))  # rows of `with_format("numpy")` are arrays
    batched = bool(conversation) and not isinstance(conversation[0], Mapping)
    conversations = conversation if batched else [conversation]
    return [
        [_message(message) for message in _listed(messages, "messages")] for messages in conversations
    ], batched


def escaped(text: str, placeholders: Sequence[str]) -> str:
    """A text in which the strings of placeholders are words: no tokenizer reads them as images."""
    for placeholder in placeholders:
        text = text.replace(placeholder, placeholder[0] + _WORD_JOINER + placeholder[1:])
    return text


def check_no_placeholder(messages: Sequence[dict], placeholders: Sequence[str], row: int) -> None:
    """Refuse prompts whose text contains a placeholder, which would be read as an image.

    In the texts of assistants and tools it is `escaped` instead: a model may write anything.

    Raises:
        ImageError: If a text of another role contains one.

    Warns:
        UserWarning: If such a text contains LLaVA's `<image>`, which this model reads as text.
    """
    for position, message in enumerate(messages):
        for block in message.get("content") or []:
            text = block.get("text") or ""
            if message.get("role") in WRITTEN:
                block |= {"text": escaped(text, placeholders)} if text else {}
                continue
            placeholder = next((string for string in placeholders if string in text), None)
            if placeholder is not None:
                raise ImageError(
                    f"the text contains {placeholder!r}, this model's placeholder for an image. Give images "
                    'as {"type": "image"} blocks or in an image column, and remove or rephrase the '
                    "placeholder in the text.",
                    row,
                    f"message {position} ({message.get('role')})",
                )
            if LLAVA_MARK in text:
                # Without the row's index, so that Python shows it once.
                warnings.warn(
                    f"A prompt contains {LLAVA_MARK!r}, which this model reads as text: its template writes "
                    f"{' or '.join(map(repr, placeholders))} for each image. Remove the mark from the texts, "
                    "or load the rows with hf_vlm_rl.data.load_llava.",
                    stacklevel=3,
                )


def fill_images(messages: Sequence[Mapping], images: Sequence | None, kind: str = "image") -> list[dict]:
    """Put images, or videos as `kind`, into a conversation's empty blocks, or before its first user text.

    An image may be a video (`videos.request.is_video`): its block becomes a video block.

    Raises:
        ImageError: If the numbers differ, or there is no user message to put them in.
    """
    conversation = normalize([messages])[0][0]
    images = _several(images, kind)
    blocks = [block for message in conversation for block in message.get("content") or []]
    empty = [block for block in blocks if block.get("type") == kind and kind not in block]
    if not empty and images:
        user = next((message for message in conversation if message.get("role") == "user"), None)
        if user is None:
            raise ImageError(f"Got {len(images)} {kind}s but no user message to put them in.")
        empty = [{"type": kind} for _ in images]
        user["content"] = [*empty, *(user.get("content") or [])]
    if len(empty) != len(images):
        raise ImageError(
            f"The conversation has {len(empty)} empty {kind} blocks but {len(images)} {kind}s were "
            f"given. Pass one {kind} per block, in order."
        )
    for block, image in zip(empty, images, strict=True):
        if kind == "video":
            block["video"] = as_video(image)
        elif is_video(image):
            block |= {"type": "video", "video": as_video(image)}
        else:
            options = options_of(block)
            block.clear()
            block |= {"type": "image", "image": with_image_options(image, options)}
    return conversation


def _several(images: Any, kind: str) -> list:
    """Images, or videos as `kind`: none, one, or an iterable, such as an array of one dimension more."""
    if images is None:
        return []
    if hasattr(images, "shape"):
        one = len(images.shape) < (4 if kind == "image" else 5)
    else:
        one = isinstance(images, str | bytes | Mapping | Video) or not isinstance(images, Iterable)
    return [images] if one else list(images)


def options_by_image(messages: Sequence[Mapping]) -> list[dict]:
    """The options of each image of a normalized conversation, empty blocks included."""
    blocks = [block for message in messages for block in message.get("content") or []]
    return [options_of(block) for block in blocks if block.get("type") == "image"]


def has_video(messages: Sequence[Mapping]) -> bool:
    """Whether a conversation has a video block, or an image block that holds a video."""
    blocks = (block for message in normalize([messages])[0][0] for block in message.get("content") or [])
    return any(block.get("type") == "video" for block in blocks)


def without_images(messages: Sequence[Mapping]) -> list[dict]:
    """A copy of a normalized conversation with empty image and video blocks."""
    return [
        {**message, "content": [_empty(block) for block in message["content"]]}
        if message.get("content")
        else dict(message)
        for message in messages
    ]


def _empty(block: Mapping) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in ("image", "video")}


def _listed(value: Any, what: str) -> Iterable:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise DataError(f"Got {value!r:.80} for a list of {what}. Expected {_EXPECTED}.")
    return value


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise DataError(f"Got the message {message!r:.80}. Expected {_EXPECTED}.")
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content}]}
    if content is None:
        return dict(message)
    return {**message, "content": [_block(block) for block in _listed(content, "blocks")]}


def _block(block: Any) -> dict[str, Any]:
    if (
        not isinstance(block, Mapping)
        or not isinstance(block.get("type"), str)
        or not isinstance(block.get("text"), str | None)
    ):
        raise DataError(f"Got the block {block!r:.80}. Expected {_EXPECTED}.")
    if block.get("type") == "video":
        held = any(block.get(name) is not None for name in VIDEO_PAYLOADS)
        return {"type": "video", "video": as_video(block)} if held else {"type": "video"}
    if (video := video_in_image_block(block)) is not None:
        return {"type": "video", "video": video}
    if block.get("type") not in ("image", "image_url"):
        return {key: value for key, value in block.items() if value is not None}
    image, options = payload(block), options_of(block)
    if image is None:
        return {"type": "image", **options}
    return {"type": "image", "image": with_image_options(image, options)}
