"""Splits rows of ids from an id-only trainer into prompt, columns and completion again.

Also the checks that such rows must pass before anything is computed from them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ImageError, TicketError
from .images.stored import RowNote
from .tickets.in_texts import TextTickets

CHECKSUM = "ids_checksum"


@dataclass(frozen=True)
class PromptRow:
    """One row of `input_ids`: what `encode_prompt` noted, and the tokens between prompt and next padding."""

    note: RowNote
    completion_ids: list[int]


def read_rows(processing: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> list[PromptRow]:
    """Split rows of ids (B, L), left-padded, that begin with a prompt from `encode_prompt`.

    Raises:
        TicketError: If a row's prompt is unknown, cut or damaged, or has padding inside it.
    """
    ids, mask = input_ids.tolist(), attention_mask.tolist()
    return [_read_row(processing, row, ids[row], mask[row]) for row in range(len(ids))]


def _read_row(processing: Any, row: int, ids: list[int], mask: list[bool]) -> PromptRow:
    start = next((place for place, seen in enumerate(mask) if seen), len(ids))
    store, codec = processing.image_store, processing.codec
    if processing.state.behind(ids[start:]) is not None:
        try:
            clean, tickets = codec.read(ids, lambda ticket: processing.processed(ticket).tokens)
        except (TicketError, ImageError) as error:
            raise type(error)(f"Row {row}: {error}") from error
        note = store.row(tickets[-1])
        if note.tail is None:
            raise TicketError(
                f"Row {row}: its ticket does not say where the prompt ends. Encode the prompts with "
                "encode_prompt."
            )
        end = len(clean) - processing.state.behind(clean) + note.tail
    else:
        seen = [token for token, is_real in zip(ids, mask, strict=True) if is_real]
        prompt = store.text_prompts.find(codec.salt, seen)
        if prompt is None:
            raise TicketError(
                f"Row {row}: it has no image and begins with no prompt that this processing class has "
                "padded. Encode the data set with encode_prompt of policy.processing_class, keep all its "
                "columns, collate it with processing_class.pad (DataCollatorWithPadding), and do not "
                "truncate it."
            )
        end, note = start + prompt[0], prompt[1]
    if end > len(ids) or not all(mask[start:end]):
        raise TicketError(f"Row {row}: {_not_whole(processing)}")
    stop = next((place for place in range(end, len(ids)) if not mask[place]), len(ids))
    return PromptRow(note, ids[end:stop])


def check_prompts(processing: Any, input_ids: torch.Tensor, mask: Any, tails: Sequence[int | None]) -> None:
    """Check prompts (B, L), with clean placeholders, before completions are sampled for them.

    `tails` has the prompt tokens that must follow each row's last image; None if not known.

    Raises:
        TicketError: If a row is right-padded, has padding inside, or was truncated.
    """
    length = input_ids.shape[1]
    last = processing.state.marks(input_ids).int().flip(1).argmax(dim=1)
    after = last.tolist()
    whole = [True] * len(after)
    if mask is not None and mask.shape == input_ids.shape:
        seen = mask.bool()
        whole = ((seen[:, 1:] >= seen[:, :-1]).all(dim=1) & seen[:, -1]).tolist()
    for row, tail in enumerate(tails):
        if not whole[row] or (tail is not None and min(after[row], length) < tail):
            raise TicketError(f"Row {row}: {_not_whole(processing)}")


def _not_whole(processing: Any) -> str:
    return (
        "padding follows or interrupts the prompt, or the prompt was truncated. Expected the whole prompt "
        f"with padding on the left (padding_side is {processing.padding_side!r}; set "
        "processing_class.padding_side = 'left'), ids as encode_prompt returned them, and a pad token "
        f"({processing.pad_token!r}) that no prompt contains."
    )


def tickets_of_row(processing: Any, row: Mapping[str, Any]) -> list[int]:
    """The tickets in the ids and in the texts of a dataset's row, each once.

    Raises:
        TicketError: If one of them was cut or edited, or its image is missing.
    """
    marks = TextTickets(str(processing.convert_ids_to_tokens(processing.state.placeholder_id)))
    return list(dict.fromkeys(_tickets_in(processing, marks, row)))


def _tickets_in(processing: Any, marks: TextTickets, value: Any) -> Iterator[int]:
    value = value.tolist() if hasattr(value, "tolist") else value  # rows of arrays or tensors
    if isinstance(value, str):
        yield from (part for part in marks.split(value) if isinstance(part, int))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tickets_in(processing, marks, each)
    elif isinstance(value, list | tuple):
        if all(type(each) is int for each in value):
            yield from _tickets_inside(processing, value)
            return
        for each in value:
            yield from _tickets_in(processing, marks, each)


def _tickets_inside(processing: Any, ids: Sequence[int]) -> list[int]:
    """The tickets in ids.

    Raises:
        TicketError: If the image of one is missing.
    """
    tickets = processing.codec.candidates(ids)
    if all(map(processing.image_store.is_whole, tickets)):
        return tickets
    # Text behind an image may look like a ticket: only a row with an unknown one is read by its lengths.
    return processing.codec.read(ids, lambda ticket: processing.processed(ticket).tokens)[1]


def checked(processing: Any, encoded: Any) -> Any:
    """Compare the ids of rows with their checksums, and return the rows without these.

    Raises:
        TicketError: If a row's ids are not those that `encode_prompt` returned, or its images are missing.
    """
    if isinstance(encoded, Mapping):
        if CHECKSUM not in encoded:
            return encoded
        sums, ids = encoded[CHECKSUM], encoded["input_ids"]
        rows = [(sums, ids)] if isinstance(sums, int) else list(zip(sums, ids, strict=True))
        without_checksum: Any = {key: value for key, value in encoded.items() if key != CHECKSUM}
    else:
        rows = [(row.get(CHECKSUM), row["input_ids"]) for row in encoded]
        if all(checksum is None for checksum, _ in rows):
            return encoded
        without_checksum = [{key: value for key, value in row.items() if key != CHECKSUM} for row in encoded]
    for row, (checksum, ids) in enumerate(rows):
        if checksum is None:
            continue
        try:
            own = _is_own(processing, list(map(int, ids)), int(checksum))
        except TicketError as error:
            raise TicketError(f"Row {row} of the batch: {error}") from error
        if not own:
            raise TicketError(
                f"Row {row} of the batch ({len(ids)} tokens) is not what encode_prompt of this model's "
                "processing class returned: it was truncated or edited, or encoded for another model. Encode "
                "the data set again with policy.processing_class, without a length limit."
            )
    return without_checksum


def _is_own(processing: Any, ids: list[int], checksum: int) -> bool:
    codec, store = processing.codec, processing.image_store
    if processing.state.behind(ids) is not None:
        if checksum != codec.checksum(ids):
            return False
        _tickets_inside(processing, ids)
        return True
    if store.text_prompts.remember(codec.salt, ids, checksum):
        return True
    # The checksum of a row with images has 31 bits, the key of a note 64: such a row has lost its images.
    if checksum not in range(1 << 31) and not store.text_prompts.has(checksum):
        raise store.files.missing(checksum, "No note for key")
    return False
