"""Whole conversations: prompts, what was answered, and where one ends and the other begins."""

from collections.abc import Mapping
from typing import Any

from ..errors import DataError
from ..processing.images.reference import Reference
from .turns import ROLES, Marks, Turns, plain


def started(messages: Any, marks: Marks, folder: str, system: str | None, name: str) -> Turns:
    """The turns of a list of messages, with a system message if there is none.

    Args:
        messages: What the row holds.
        marks: What stands for an image.
        folder: Paths of images are relative to it.
        system: The system message; None for none.
        name: Of the field, for messages of errors.

    Raises:
        DataError: If it is no list of messages.
    """
    if not isinstance(messages, list) or not messages:
        raise DataError(f"{name!r} is {str(messages)[:80]!r}; expected a list of messages")
    turns = Turns(marks, folder)
    first = messages[0]
    if system is not None and isinstance(first, Mapping) and first.get("role", first.get("from")) != "system":
        turns.add("system", system)
    _add(turns, messages, name)
    return turns


def answered(value: Any, marks: Marks, name: str) -> list[dict[str, Any]]:
    """The messages of a completion: a string, or messages that begin with the assistant's.

    Raises:
        DataError: If it is something else, or has images.
    """
    messages = [{"role": "assistant", "content": value}] if isinstance(value, str) else value
    turns = started(messages, marks, "", None, name)
    if turns.images or turns.messages[0]["role"] != "assistant":
        raise DataError(
            f"{name!r} begins with the {turns.messages[0]['role']} and has {len(turns.images)} image(s); "
            "expected the assistant, and images only in the prompt"
        )
    return turns.messages


def split_turns(
    turns: Turns, images: list[Reference], answer: str | None, completion: bool
) -> dict[str, Any]:
    """The columns of a conversation: what was said up to the last turn of the user, and what came after.

    Raises:
        DataError: If there is no user; if more than one turn, or another than the assistant's, follows the
            last of the user; if images and places differ; if a completion is asked for and there is none.
    """
    placed = turns.place(images)
    messages = turns.messages
    asked = [position for position, turn in enumerate(messages) if turn["role"] == "user"]
    if not asked:
        raise DataError(f"no turn of a user; expected one of {[r for r in ROLES if ROLES[r] == 'user']}")
    prompt, rest = messages[: asked[-1] + 1], messages[asked[-1] + 1 :]
    if len(rest) > 1 or (rest and rest[0]["role"] != "assistant"):
        raise DataError(
            f"after the last turn of the user come {[turn['role'] for turn in rest]}; expected one answer "
            "of the assistant at most"
        )
    if completion and not rest:
        raise DataError("the conversation ends with the user; expected an answer, for the completion")
    made = {"prompt": prompt, "images": placed}
    if answer is not None:
        made[answer] = plain(rest) if rest else None
    return made | ({"completion": rest} if completion else {})


def _add(turns: Turns, messages: list, name: str) -> None:
    for position, message in enumerate(messages):
        fields = message if isinstance(message, Mapping) else {}
        if len(fields) > 2:
            fields = {key: value for key, value in fields.items() if value is not None}
        if len(fields) == 2 and "role" in fields and "content" in fields:
            turns.add(fields["role"], fields["content"])
        elif len(fields) == 2 and "from" in fields and "value" in fields:
            turns.add(fields["from"], fields["value"])
        else:
            raise DataError(
                f"{name}[{position}] is {str(message)[:120]!r}; expected {{'role': ..., 'content': ...}} and "
                "nothing else"
            )
