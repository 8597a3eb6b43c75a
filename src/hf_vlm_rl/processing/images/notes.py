"""What `encode_prompt` noted about prompts without an image.

The note of a prompt with images is found by their tickets. Without images, there is no ticket: the note is a
file whose key travels in the row's checksum column as far as `pad`. From there on, `find` looks the note up
by the prompt's ids.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence

from ...errors import TicketError
from .disk import Directory, content_hash, name
from .lru import ByteBoundedCache
from .stored import RowNote, as_json

PROMPT, REMEMBERED = ".prompt.json", ".remembered.json"
LIMIT_BYTES = 1 << 28


class TextPrompts:
    """Prompts without images that this process has padded, found by the ids that a row begins with.

    Args:
        disk: Where notes live, and where those go that memory has no room for.
        limit_bytes: Bound of the notes in memory, in bytes of JSON.
    """

    def __init__(self, disk: Directory, limit_bytes: int = LIMIT_BYTES):
        self._disk = disk
        self._remembered: ByteBoundedCache[bytes, bytes] = ByteBoundedCache(
            limit_bytes, len, self._write_remembered
        )
        self.forget()

    def forget(self) -> None:
        """Begin a new run, in which a known prompt may come with other columns."""
        self._remembered.clear()
        self._written: set[int] = set()  # lengths of the prompts that are remembered on disk alone
        self._run = secrets.token_bytes(8)  # part of each key on disk, so that a run finds only its own

    def keep(self, salt: int, ids: Sequence[int], note: RowNote) -> int:
        """Write the note of a prompt without images.

        Args:
            salt: `TicketCodec.salt`: equal ids of two tokenizers are two prompts.
            ids: The prompt.
            note: Its columns and messages.

        Returns:
            The note's key, a signed 64-bit integer.

        Raises:
            TicketError: If the note cannot be written as JSON.
            OSError: If it cannot be written to disk.
        """
        content = {"salt": salt, "ids": list(ids), "columns": dict(note.columns), "prompt": note.prompt}
        text = as_json(content)
        key = content_hash(text)
        self._disk.write(key, PROMPT, text, keep=True)
        return key

    def remember(self, salt: int, ids: Sequence[int], key: int) -> bool:
        """Make a row's note known to `find`.

        Args:
            salt: As in `keep`.
            ids: The row: the prompt, or the prompt with its answer.
            key: What `keep` returned for the prompt.

        Returns:
            Whether the note exists and its prompt is what `ids` begins with.

        Raises:
            TicketError: If equal ids came with another note before: they could not be told apart; or if the
                note's file is damaged.
        """
        text = self._disk.read(key, PROMPT)
        if text is None:
            return False
        if content_hash(text) != key:
            raise TicketError(
                f"{self._disk.find(key, PROMPT)} does not hold what key {name(key)} stands for. Encode the "
                "row again, which writes the file anew."
            )
        content = json.loads(text)
        prompt = content["ids"]
        if content["salt"] != salt or prompt != list(ids[: len(prompt)]):
            return False
        prefix = _prefix_keys(salt, prompt)[-1]
        known = self._recall(len(prompt), prefix) or self._remembered.put(prefix, text)
        if known != text:
            raise TicketError(
                f"The same prompt without an image came with the columns {json.loads(known)['columns']} "
                f"before, and now with {content['columns']}. Only its text tells which columns are a row's "
                "own: make the texts differ, or give them the same columns. (Between two runs, start a new "
                "process.)"
            )
        return True

    def find(self, salt: int, ids: Sequence[int]) -> tuple[int, RowNote] | None:
        """The longest remembered prompt that a row without images begins with.

        Args:
            salt: As in `keep`.
            ids: The row without padding: a prompt and its completion.

        Returns:
            The prompt's number of tokens and its note; None if no prompt is known.
        """
        for length, prefix in reversed(list(enumerate(_prefix_keys(salt, ids), start=1))):
            text = self._recall(length, prefix)
            if text is not None and (content := json.loads(text))["ids"] == list(ids[:length]):
                return length, RowNote(content["columns"], content["prompt"])
        return None

    def _recall(self, length: int, prefix: bytes) -> bytes | None:
        text = self._remembered.get(prefix)
        if text is None and length in self._written:
            text = self._disk.read(content_hash(self._run, prefix), REMEMBERED)
        return text

    def _write_remembered(self, prefix: bytes, text: bytes) -> None:
        # Into `kept/`, which nothing sweeps: if the file were gone, `find` would take a long prompt for a
        # shorter one that it begins with.
        self._disk.write(content_hash(self._run, prefix), REMEMBERED, text, keep=True)
        self._written.add(len(json.loads(text)["ids"]))


def _prefix_keys(salt: int, ids: Sequence[int]) -> list[bytes]:
    """A key of each prefix of `ids`, shortest first."""
    digest = hashlib.blake2b(salt.to_bytes(4, "little"), digest_size=8)
    keys = []
    for token in ids:
        digest.update(int(token).to_bytes(4, "little"))
        keys.append(digest.copy().digest())
    return keys
