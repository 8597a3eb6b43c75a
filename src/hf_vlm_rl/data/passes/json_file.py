"""Rows of JSON Lines files and JSON lists, one at a time, from any row on."""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...errors import DataError

CHUNK = 1 << 20  # bytes read at once
_BOM = codecs.BOM_UTF8
_SPACE = b" \t\r\n"
_OTHER_KINDS = {
    b"PK": "a zip archive",
    b"\x1f\x8b": "gzip-compressed; unpack it first",
    b"PAR1": "Parquet; read it with datasets.load_dataset and pass that to from_dataset",
    codecs.BOM_UTF16_LE: "UTF-16; save it as UTF-8",
    codecs.BOM_UTF16_BE: "UTF-16; save it as UTF-8",
}


class Start(NamedTuple):
    """Where a row begins.

    Attributes:
        offset: In bytes from the file's beginning; in a list, of the value or the white space before it.
        number: The line, from 1, or the index in a list, from 0.
    """

    offset: int
    number: int


class Record(NamedTuple):
    """What stands at one place of a file.

    Attributes:
        start: Its place.
        value: What JSON says; a DataError, without the place, if a line is no JSON or no Unicode.
    """

    start: Start
    value: Any


def is_list(path: Path) -> bool:
    """Whether the file holds one JSON list rather than a value per line.

    Raises:
        DataError: If the file cannot be read, is empty, or is of another kind.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(4096).removeprefix(_BOM)
            while head and not head.strip(_SPACE):
                head = file.read(4096)
    except OSError as error:
        raise DataError(
            f"Cannot read {str(path)!r}: {error.strerror or error}. Expected a JSON Lines file or a JSON "
            "list."
        ) from error
    if not head:
        raise DataError(f"{path} is empty. Expected a JSON Lines file or a JSON list with at least one row.")
    for magic, kind in _OTHER_KINDS.items():
        if head.startswith(magic):
            raise DataError(f"{path} is {kind}. Expected a JSON Lines file or a JSON list, in UTF-8.")
    return head.lstrip(_SPACE).startswith(b"[")


def records(path: Path, listed: bool, start: Start | None = None) -> Iterator[Record]:
    """What a file holds, in order; blank lines are passed over.

    Args:
        path: The file.
        listed: What `is_list` says of it.
        start: Begin here, with the `start` of an earlier record; None for the beginning.

    Raises:
        DataError: If a list is no JSON: what follows the mistake cannot be found. A line is a record with
            the error instead.
    """
    with open(path, "rb") as file:
        yield from (_items(file, path, start) if listed else _lines(file, start))


def _lines(file: IO[bytes], start: Start | None) -> Iterator[Record]:
    offset, number = (start.offset, start.number) if start else (0, 1)
    file.seek(offset)
    for number, line in enumerate(file, number):  # noqa: B020
        text = line.removeprefix(_BOM) if offset == 0 else line
        if text.strip(_SPACE):
            yield Record(Start(offset, number), _parsed(text))
        offset += len(line)


def _parsed(line: bytes) -> Any:
    try:
        text = line.decode()
        return _whole(json.loads(text), text)
    except UnicodeDecodeError as error:
        return DataError(f"byte {error.start} is not UTF-8 ({error.reason}); save the file as UTF-8")
    except (ValueError, RecursionError) as error:
        return DataError(f"not JSON ({error}); expected one JSON object per line")


def _whole(value: Any, text: str) -> Any:
    """The value, or an error if it holds half a character, which JSON can write and UTF-8 cannot."""
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return DataError(r"a text has one half of a surrogate pair, such as \ud83d; write both, or none")
    return value


def _items(file: IO[bytes], path: Path, start: Start | None) -> Iterator[Record]:
    reader = _ListReader(file, path)
    reader.open(start)
    number = start.number if start else 0
    while reader.more(number):
        yield Record(Start(reader.offset(), number), reader.value(number))
        number += 1


class _ListReader:
    """A JSON list through a window of text that grows to the largest value and no further."""

    def __init__(self, file: IO[bytes], path: Path):
        self.file, self.path = file, path
        self.decoder = json.JSONDecoder()
        self.utf8 = codecs.getincrementaldecoder("utf-8")()
        self.text, self.at = "", 0
        self.counted, self.bytes = 0, 0  # characters of the window, and bytes of the file that end there
        self.first, self.ended = True, False

    def open(self, start: Start | None) -> None:
        """Go to a value, or to the first."""
        if start is not None:
            self.bytes = start.offset
            self.file.seek(start.offset)
            return
        if self.file.read(len(_BOM)) == _BOM:
            self.bytes = len(_BOM)
        self.file.seek(self.bytes)
        self._next()  # the bracket, as `is_list` saw
        self.at += 1

    def offset(self) -> int:
        """Bytes of the file before the next character."""
        self.bytes += len(self.text[self.counted : self.at].encode())
        self.counted = self.at
        return self.bytes

    def more(self, number: int) -> bool:
        """Whether another value follows; passes the comma before it."""
        character = self._next()
        if character == "]":
            self.at += 1
            if self._next():
                self._fail(number, "something follows the list's closing bracket")
            return False
        if not self.first:
            if character != ",":
                self._fail(number, f"expected ',' or ']', found {character!r}" if character else "cut off")
            self.at += 1
            if self._next() == "]":
                self._fail(number, "a comma before the closing bracket")
        self.first = False
        return True

    def value(self, number: int) -> Any:
        """Parse the value that begins here."""
        wanted = CHUNK
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
            except RecursionError as error:
                self._fail(number, str(error))
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos > len(self.text) - 16
                if self.ended or not cut:
                    self._fail(number, f"{error.msg}, {error.pos - self.at} characters into the value")
            else:
                # A number may go on behind the window.
                if end < len(self.text) or self.ended:
                    begin, self.at = self.at, end
                    return _whole(value, self.text[begin:end])
            self._read(wanted)
            wanted *= 2

    def _next(self) -> str:
        """The next character that is no white space, without passing it; "" at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            self._read(CHUNK)

    def _read(self, size: int) -> None:
        data = self.file.read(size)
        self.ended = not data
        try:
            more = self.utf8.decode(data, final=self.ended)
        except UnicodeDecodeError as error:
            raise DataError(f"{self.path} is not UTF-8 ({error.reason}). Save the file as UTF-8.") from error
        self.offset()
        self.text, self.at, self.counted = self.text[self.at :] + more, 0, 0

    def _fail(self, number: int, why: str) -> None:
        raise DataError(
            f"{self.path}, index {number}: not a JSON list ({why}). What follows cannot be read; correct the "
            "file, or write one JSON object per line, of which bad ones can be skipped."
        )
