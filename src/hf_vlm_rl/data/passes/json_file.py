"""Rows of JSON Lines files and JSON lists, one at a time."""

import codecs
import difflib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...errors import DataError

CHUNK = 1 << 20  # characters read at once
_SPACE = " \t\r\n"
_SPACES = re.compile("[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_OTHER_KINDS = {
    b"PK": "a zip archive",
    b"\x1f\x8b": "gzip-compressed; unpack it first",
    b"PAR1": "Parquet; name it .parquet",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    codecs.BOM_UTF16_LE: "UTF-16; save it as UTF-8",
    codecs.BOM_UTF16_BE: "UTF-16; save it as UTF-8",
}


class BrokenList(DataError):
    """What follows a place of a list cannot be read; the arguments are the place and the reason."""

    def __str__(self) -> str:
        return ": ".join(self.args)


class Record(NamedTuple):
    """What stands at one place of a file.

    Attributes:
        place: The file with the line, from 1, or with the index in a list, from 0.
        value: What JSON says; a DataError, without the place, if a line is no JSON or no Unicode.
    """

    place: str
    value: Any


def is_list(path: Path) -> bool:
    """Whether the file holds one JSON list rather than a value per line.

    Raises:
        DataError: If the file cannot be read, is empty, or is of another kind.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(4096).removeprefix(codecs.BOM_UTF8)
            while head and not head.strip():
                head = file.read(4096)
    except OSError as error:
        beside = os.listdir(path.parent) if path.parent.is_dir() else []
        close = [str(path.parent / name) for name in difflib.get_close_matches(path.name, beside)]
        meant = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise DataError(
            f"Cannot read {str(path)!r}: {error.strerror or error}.{meant} Expected a file of rows: JSON "
            "Lines, a JSON list, .parquet, .csv or .tar."
        ) from error
    if not head:
        raise DataError(f"{path} is empty. Expected a JSON Lines file or a JSON list with at least one row.")
    for magic, kind in _OTHER_KINDS.items():
        if head.startswith(magic):
            raise DataError(f"{path} is {kind}. Expected a JSON Lines file or a JSON list, in UTF-8.")
    return head.lstrip().startswith(b"[")


def records(path: Path) -> Iterator[Record]:
    """What a file holds, in order; blank lines are passed over.

    Raises:
        DataError: If `is_list` refuses the file.
        BrokenList: If a list is no JSON: what follows the mistake cannot be found. A line is a record with
            the error instead.
    """
    read = _items if is_list(path) else _lines
    # Bytes that are no UTF-8 become surrogates, so that only their own row is refused.
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        yield from read(file, path)


def _lines(file: IO[str], path: Path) -> Iterator[Record]:
    for number, line in enumerate(file, 1):
        if line.strip(_SPACE):
            yield Record(f"{path}, line {number}", _parsed(line))


def _parsed(line: str) -> Any:
    try:
        return whole(json.loads(line), line)
    except (ValueError, RecursionError) as error:
        return _no_utf_8(line) or DataError(f"not JSON ({error}); expected one JSON object per line")


def whole(value: Any, text: str) -> Any:
    """The value, or an error if it holds half a character, which JSON can write and UTF-8 cannot."""
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return DataError(r"a text has one half of a surrogate pair, such as \ud83d; write both, or none")
    return _no_utf_8(text) or value


def _no_utf_8(text: str) -> DataError | None:
    try:
        if not text.isascii():
            text.encode(errors="surrogateescape").decode()
    except UnicodeDecodeError as error:
        return DataError(f"byte {error.start} is not UTF-8 ({error.reason}); save the file as UTF-8")
    return None


def _items(file: IO[str], path: Path) -> Iterator[Record]:
    """The values of a list, read through a window that grows to the longest value and no further."""
    window, at, number, ended = "", 0, 0, False
    while True:
        try:
            value, begin, end = _value(window, at, number)
            cut = end == len(window)  # what follows may belong to a number, or be no white space
        except _Broken as broken:
            if ended or not broken.cut:
                raise BrokenList(
                    f"{path}, index {number}",
                    f"not a JSON list ({broken}). What follows cannot be read; correct the file, or write "
                    "one JSON object per line, of which bad ones can be skipped.",
                ) from None
            cut = True
        if cut and not ended:
            data = file.read(max(CHUNK, len(window) - at))
            window, at, ended = window[at:] + data, 0, not data
        elif begin == end:
            return
        else:
            yield Record(f"{path}, index {number}", whole(value, window[begin:end]))
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

    `at` is the place in the window before the bracket or the comma of the value.

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
    except json.JSONDecodeError as error:
        cut = error.msg.startswith("Unterminated string") or error.pos > len(window) - 16
        raise _Broken(f"{error.msg}, {error.pos - at} characters into the value", cut) from None
    except (RecursionError, ValueError) as error:  # ValueError: an integer of more than 4,300 digits
        raise _Broken(str(error), False) from None
    return value, at, end
