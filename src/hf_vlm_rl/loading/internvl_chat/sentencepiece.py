"""Reads a SentencePiece `tokenizer.model` without the sentencepiece library.

The file is a protocol buffer; what tokenizing needs are its pieces and a few settings.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from ...errors import CheckpointError

# Field numbers of sentencepiece's ModelProto and its parts.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_KIND = 1, 2, 3
_MODEL_TYPE, _BYTE_FALLBACK = 3, 35
_CHARSMAP, _DUMMY_PREFIX, _EXTRA_SPACES = 2, 3, 4
_BPE = 2


class Kind(IntEnum):
    """Kinds of pieces."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; its id is its position."""

    text: str
    score: float
    kind: Kind


@dataclass(frozen=True)
class SentencePieceModel:
    """A byte-pair model.

    Attributes:
        pieces: The vocabulary, by id.
        byte_fallback: Characters without a piece become byte pieces.
        dummy_prefix: A space is put before every text.
    """

    pieces: tuple[Piece, ...]
    byte_fallback: bool
    dummy_prefix: bool


def read_model(path: Path) -> SentencePieceModel:
    """Parse a `tokenizer.model`.

    Raises:
        CheckpointError: If the file is damaged or truncated, or needs something that cannot be
            rebuilt exactly.
    """
    try:
        fields = list(_fields(path.read_bytes()))
        pieces = tuple(_piece(value) for number, value in fields if number == _PIECES)
        settings = {
            number: dict(_fields(value)) for number, value in fields if number in (_TRAINER, _NORMALIZER)
        }
    except (ValueError, IndexError, struct.error) as error:
        raise CheckpointError(
            f"{path} is no complete SentencePiece model ({error}). Download it again."
        ) from error
    # The settings follow the pieces: a file that was cut between two fields lacks them.
    if not pieces or len(settings) < 2:
        raise CheckpointError(
            f"{path} ends after {len(pieces)} pieces, before the model's settings: it is truncated. "
            "Download it again."
        )
    trainer, normalizer = settings[_TRAINER], settings[_NORMALIZER]
    wanted = {
        "a byte-pair model": trainer.get(_MODEL_TYPE) == _BPE,
        "no character map": not normalizer.get(_CHARSMAP),
        "remove_extra_whitespaces off": normalizer.get(_EXTRA_SPACES) == 0,
    }
    if not all(wanted.values()):
        lacking = ", ".join(name for name, found in wanted.items() if not found)
        raise CheckpointError(
            f"{path} is a SentencePiece model of a kind that cannot be rebuilt exactly; expected {lacking}. "
            "Add a tokenizer.json to the checkpoint."
        )
    return SentencePieceModel(
        pieces, bool(trainer.get(_BYTE_FALLBACK)), normalizer.get(_DUMMY_PREFIX, 1) == 1
    )


def _piece(data: bytes) -> Piece:
    values = dict(_fields(data))
    score = struct.unpack("<f", values.get(_PIECE_SCORE, b"\0\0\0\0"))[0]
    return Piece(values[_PIECE_TEXT].decode(), score, Kind(values.get(_PIECE_KIND, Kind.NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and raw values of a protocol-buffer message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == 2:
            size, position = _varint(data, position)
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire_type} at byte {position}")
        if position + size > len(data):
            raise ValueError(f"field {number} ends {position + size - len(data)} bytes after the file")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
