"""What `encode_prompt` noted about prompts without an image.

A prompt with images carries its note with their tickets. One without has nothing in its ids that
could: the note is a file, its key travels as the row's checksum as far as `pad`, and from there on
the note is found by the prompt's ids.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ..errors import TicketError
from .images.store import ImageStore
from .images.stored import RowNote

SUFFIX = ".prompt.json"


def keep_text_prompt(store: ImageStore, salt: int, ids: Sequence[int], note: RowNote) -> int:
    """Write the note of a prompt without images.

    Args:
        store: Where notes live.
        salt: `TicketCodec.salt`: equal ids of two tokenizers are two prompts.
        ids: The prompt.
        note: Its columns and messages.

    Returns:
        The note's key, a signed 64-bit integer.

    Raises:
        TicketError: If the note cannot be written as JSON.
    """
    content = {"salt": salt, "ids": list(ids), "columns": dict(note.columns), "prompt": note.prompt}
    try:
        text = json.dumps(content, sort_keys=True, ensure_ascii=False).encode()
    except TypeError as error:
        raise TicketError(
            f"The columns {sorted(note.columns)} and the messages must be JSON values "
            f"(str, int, float, bool, None, lists, dicts): {error}."
        ) from error
    key = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)
    path = store._path(key, SUFFIX, keep=True)
    if not path.exists():
        store._write(path, text)
    return key


def remember_text_prompt(store: ImageStore, salt: int, ids: Sequence[int], key: int) -> bool:
    """Make a row's note known to `find_text_prompt`.

    Args:
        store: Where notes live.
        salt: As in `keep_text_prompt`.
        ids: The row: the prompt, or the prompt with its answer.
        key: What `keep_text_prompt` returned for the prompt.

    Returns:
        Whether the note exists and is that of `ids`.

    Raises:
        TicketError: If equal ids came with another note before: they could not be told apart.
    """
    path = store._path(key, SUFFIX, keep=True)
    if not path.is_file():
        return False
    content = json.loads(path.read_bytes())
    prompt = content["ids"]
    if content["salt"] != salt or prompt != list(ids[: len(prompt)]):
        return False
    known = store._texts.setdefault(_prefix_keys(salt, prompt)[-1], content)
    if known != content:
        raise TicketError(
            f"The same prompt without an image came with the columns {known['columns']} before, and now "
            f"with {content['columns']}. Only its text tells which columns are a row's own: make the texts "
            "differ, or give them the same columns. (Between two runs, start a new process.)"
        )
    return True


def find_text_prompt(store: ImageStore, salt: int, ids: Sequence[int]) -> tuple[int, RowNote] | None:
    """The longest remembered prompt that a row without images begins with.

    Args:
        store: Where notes live.
        salt: As in `keep_text_prompt`.
        ids: The row without padding: a prompt and its completion.

    Returns:
        The prompt's number of tokens and its note; None if no prompt is known.
    """
    for length, key in reversed(list(enumerate(_prefix_keys(salt, ids), start=1))):
        content: dict[str, Any] | None = store._texts.get(key)
        if content is not None and content["ids"] == list(ids[:length]):
            return length, RowNote(content["columns"], content["prompt"])
    return None


def _prefix_keys(salt: int, ids: Sequence[int]) -> list[bytes]:
    """A key of each prefix of `ids`, shortest first."""
    digest = hashlib.blake2b(salt.to_bytes(4, "little"), digest_size=8)
    keys = []
    for token in ids:
        digest.update(int(token).to_bytes(4, "little"))
        keys.append(digest.copy().digest())
    return keys
