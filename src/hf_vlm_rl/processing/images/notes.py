"""What `encode_prompt` noted about prompts without an image.

The note of a prompt with images is found by their tickets. Without images, there is no ticket: the note is a
file whose key travels in the row's checksum column as far as `pad`. From there on, `find` looks the note up
by the prompt's ids.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ...errors import TicketError
from .checked_files import CheckedFiles
from .disk import content_hash, name
from .kinds import PROMPT
from .stored import RowNote, as_json


class TextPrompts:
    """Prompts without images that this process has padded, found by the ids that a row begins with.

    Memory holds two hashes of each prompt; what was noted stays in the prompt's file.
    """

    def __init__(self, files: CheckedFiles):
        self._files = files
        self.forget()

    def forget(self) -> None:
        """Begin a new run, in which a known prompt may come with other columns."""
        self._keys: dict[bytes, int] = {}  # hash of a prompt's ids to the key of its note

    def keep(self, salt: int, ids: Sequence[int], note: RowNote) -> int:
        """Write the note of a prompt without images, and return its key, a signed 64-bit integer.

        `salt` is `TicketCodec.salt`: equal ids of two tokenizers are two prompts.

        Raises:
            TicketError: If the note cannot be written as JSON.
            OSError: If it cannot be written to disk.
        """
        content = {"salt": salt, "ids": list(ids), "columns": dict(note.columns), "prompt": note.prompt}
        text = as_json(content)
        key = content_hash(text)
        self._files.write_text(key, PROMPT, text, keep=True)
        return key

    def remember(self, salt: int, ids: Sequence[int], key: int) -> bool:
        """Make known to `find` the note that `keep` wrote of a row's prompt; `ids` may go on with its answer.

        Returns:
            Whether the note exists and its prompt is what `ids` begins with.

        Raises:
            TicketError: If equal ids came with another note before: they could not be told apart; or if the
                note's file is damaged.
        """
        content = self._content(key)
        if content is None:
            return False
        prompt = content["ids"]
        if content["salt"] != salt or prompt != list(ids[: len(prompt)]):
            return False
        known = self._keys.setdefault(_prefix_keys(salt, prompt)[-1], key)
        if known != key:
            before = self._content(known) or {}
            raise TicketError(
                f"The same prompt without an image came with the columns {before.get('columns')} before, and "
                f"now with {content['columns']}. Only its text tells which columns are a row's own: make the "
                "texts differ, or give them the same columns. (Between two runs, start a new process.)"
            )
        return True

    def has(self, key: int) -> bool:
        """Whether there is a note of this key."""
        return self._content(key) is not None

    def find(self, salt: int, ids: Sequence[int]) -> tuple[int, RowNote] | None:
        """Tokens and note of the longest remembered prompt that a row without images and padding begins with.

        Raises:
            TicketError: If the note's file is damaged, or was deleted since.
        """
        for length, prefix in reversed(list(enumerate(_prefix_keys(salt, ids), start=1))):
            if (key := self._keys.get(prefix)) is None:
                continue
            content = self._content(key)
            if content is None:  # not a shorter prompt that this one begins with
                raise TicketError(f"The note {name(key)} of a prompt was deleted. Encode the row again.")
            if content["ids"] == list(ids[:length]):
                return length, RowNote(content["columns"], content["prompt"])
        return None

    def _content(self, key: int) -> dict[str, Any] | None:
        self._files.bring(key, PROMPT)
        text = self._files.read_text(key, PROMPT)
        return None if text is None else json.loads(text)


def _prefix_keys(salt: int, ids: Sequence[int]) -> list[bytes]:
    """A key of each prefix of `ids`, shortest first."""
    digest = hashlib.blake2b(salt.to_bytes(4, "little"), digest_size=8)
    keys = []
    for token in ids:
        digest.update(int(token).to_bytes(4, "little"))
        keys.append(digest.copy().digest())
    return keys
