"""Rows of JSON Lines files and JSON lists, one at a time, from any row on."""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...errors import DataError

CHUNK = 1 << 20  # bytes read at once
_BOM = codecs.BOM_UTF8
_SPACE = b" \t\r\n"
_SPACES = re.compile("[ \t\r\n]*")
_DECODER = json.JSONDecoder()
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
        offset: In bytes from the file's beginning; in a list, of the bracket or comma before the value, or of
            the white space before that.
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
    """The values of a list, each found with the bracket or comma before it, where `Start` points.

    The file is read through a window of Latin-1, in which characters are bytes: JSON's own signs are ASCII,
    and a place in the window is a place in the file. The window grows to the longest value and no further.
    """
    offset, number = start or Start(len(_BOM) if file.read(len(_BOM)) == _BOM else 0, 0)
    file.seek(offset)
    window, at, ended = "", 0, False
    while True:
        try:
            value, begin, end = _value(window, at, number)
            cut = end == len(window)  # what follows may belong to a number, or be no white space
        except _Broken as broken:
            if ended or not broken.cut:
                raise DataError(
                    f"{path}, index {number}: not a JSON list ({broken}). What follows cannot be read; "
                    "correct the file, or write one JSON object per line, of which bad ones can be skipped."
                ) from None
            cut = True
        if cut and not ended:
            data = file.read(max(CHUNK, len(window) - at))
            window, offset, at, ended = window[at:] + data.decode("latin-1"), offset + at, 0, not data
        elif begin == end:
            return
        else:
            text = window[begin:end]
            value = _whole(value, text) if text.isascii() else _parsed(text.encode("latin-1"))
            yield Record(Start(offset + at, number), value)
            at, number = end, number + 1


def _after_spaces(window: str, at: int) -> int:
    spaces = _SPACES.match(window, at)
    return spaces.end() if spaces else at


class _Broken(Exception):
    """No JSON list; `cut` if more of the file could make it one."""

    def __init__(self, why: str, cut: bool):
        super().__init__(why)
        self.cut = cut


def _value(window: str, at: int, number: int) -> tuple[Any, int, int]:
    """The next value of a list, where it begins and where it ends; twice the window's end behind the last.

    Args:
        window: A part of the file.
        at: The place in it before the bracket or the comma of the value.
        number: The value's index.

    Raises:
        _Broken: If there is none.
    """
    at = _after_spaces(window, at)
    sign = window[at : at + 1]
    if sign != "]" or not number:
        if sign != ("," if number else "["):
            raise _Broken(f"expected ',' or ']', found {sign!r}" if sign else "cut off", not sign)
        at = _after_spaces(window, at + 1)
        sign = window[at : at + 1]
        if sign == "]" and number:
            raise _Broken("a comma before the closing bracket", False)
    if sign == "]":
        at = _after_spaces(window, at + 1)
        if at < len(window):
            raise _Broken("something follows the list's closing bracket", False)
        return None, at, at
    try:
        value, end = _DECODER.raw_decode(window, at)
    except RecursionError as error:
        raise _Broken(str(error), False) from None
    except json.JSONDecodeError as error:
        cut = error.msg.startswith("Unterminated string") or error.pos > len(window) - 16
        raise _Broken(f"{error.msg}, {error.pos - at} bytes into the value", cut) from None
    return value, at, end
