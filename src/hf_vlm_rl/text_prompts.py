"""What `encode_prompt` noted about prompts without an image, found again by their ids.

A prompt with images carries its note with its tickets. One without has nothing that could carry it,
so the note is kept on disk under a hash of the prompt's ids.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from .errors import TicketError
from .store import ImageStore, RowNote, name

SUFFIX = ".prompt.json"


def keep_text_prompt(store: ImageStore, salt: int, ids: Sequence[int], note: RowNote) -> None:
    """Keep the note of a prompt without images.

    Args:
        store: Where notes live.
        salt: `TicketCodec.salt`: equal ids of two tokenizers are two prompts.
        ids: The prompt.
        note: Its columns and messages.

    Raises:
        TicketError: If the same ids were kept with other columns, so that a row could not tell which
            are its own; or if the note cannot be written as JSON.
    """
    key = _prefix_keys(salt, ids)[-1]
    content = {"ids": list(ids), "columns": dict(note.columns), "prompt": note.prompt}
    try:
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    except TypeError as error:
        raise TicketError(
            f"The columns {sorted(note.columns)} and the messages must be JSON values "
            f"(str, int, float, bool, None, lists, dicts): {error}."
        ) from error
    content = json.loads(text)  # what readers will find
    known = _read(store, key, ids)
    if known == content or (known is not None and not content["columns"]):
        return
    if known is not None and known["columns"]:
        raise TicketError(
            f"The same prompt without an image was encoded with the columns {known['columns']} before, "
            f"and now with {content['columns']}. Only its text tells which columns are a row's own: "
            "make the texts differ, give them the same columns, or, if no data set uses the old ones, "
            f"delete {store._path(key, SUFFIX, keep=True)}."
        )
    store._write(store._path(key, SUFFIX, keep=True), text.encode())
    store._texts[key] = content


def find_text_prompt(store: ImageStore, salt: int, ids: Sequence[int]) -> tuple[int, RowNote] | None:
    """The longest known prompt that a row without images begins with.

    Args:
        store: Where notes live.
        salt: As in `keep_text_prompt`.
        ids: The row without padding: a prompt and its completion.

    Returns:
        The prompt's number of tokens and its note; None if no prompt is known.
    """
    keys = _prefix_keys(salt, ids)
    for length in range(len(ids), 0, -1):
        content = _read(store, keys[length - 1], ids[:length])
        if content is not None:
            return length, RowNote(content["columns"], content["prompt"])
    return None


def _read(store: ImageStore, key: int, ids: Sequence[int]) -> dict[str, Any] | None:
    content = store._texts.get(key)
    if content is None:
        path = store._path(key, SUFFIX, keep=True)
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_bytes())
            intact = content["ids"] == list(ids)
        except (ValueError, KeyError, TypeError):
            intact = False
        if not intact:
            raise TicketError(
                f"{path} does not hold the note of prompt {name(key)}. Delete it and encode the row again."
            )
        store._texts[key] = content
    return content


def _prefix_keys(salt: int, ids: Sequence[int]) -> list[int]:
    """The key of each prefix of `ids`, shortest first."""
    digest = hashlib.blake2b(b"prompt" + salt.to_bytes(4, "little"), digest_size=8)
    keys = []
    for token in ids:
        digest.update(int(token).to_bytes(4, "little"))
        keys.append(int.from_bytes(digest.copy().digest(), "little", signed=True))
    return keys
