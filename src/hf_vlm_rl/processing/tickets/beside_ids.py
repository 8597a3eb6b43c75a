"""Tickets in the slots that trainers carry for pixels.

    pixel_values     uint8 (N, 15): per image, the 8 bytes of its ticket, 3 of the prompt tokens behind the
                     row's last image (0: not carried, else one more than their number), 4 of their CRC-32
    image_grid_thw   int64 (N, 3): ones

Every TRL version slices this layout by image. Some trainers cast pixels to the model's dtype: whole numbers
up to 255 are the same in float16 and bfloat16, so tickets come back from any such cast.

Where a trainer compares an image's number of patches with its tokens, the image takes that many rows: the
first holds the ticket, the others are `_FILLER`, and its grid is 1 x 1 x rows.
"""

import zlib
from collections.abc import Sequence

import torch

from ...errors import TicketError

WIDTH = 15
_TICKET, _TAIL = 8, 3


def encode_tickets(
    carried: Sequence[tuple[int, int | None]], patches: Sequence[int] | None = None
) -> dict[str, torch.Tensor]:
    """The tensors for N images.

    Args:
        carried: Per image, its ticket and the prompt tokens behind the row's last image, or None.
        patches: Rows of `pixel_values` that each image takes; default: one.
    """
    lengths = [1] * len(carried) if patches is None else list(patches)
    rows = [
        row
        for (ticket, tail), length in zip(carried, lengths, strict=True)
        for row in (_row(ticket, tail), *[_FILLER] * (length - 1))
    ]
    return {
        "pixel_values": torch.tensor(rows, dtype=torch.uint8).view(len(rows), WIDTH),
        "image_grid_thw": torch.tensor([[1, 1, length] for length in lengths], dtype=torch.int64).view(-1, 3),
    }


def decode_tickets(pixel_values: object) -> list[tuple[int, int | None]] | None:
    """What `carried` was for `encode_tickets`; None for tensors that it did not make, such as pixels.

    Raises:
        TicketError: If the tensor has the form of tickets, in whole numbers, and is damaged, or holds tickets
            in more than two dimensions. A change of up to 3 neighbouring bytes of a row is always found, any
            other is missed with a chance of 2**-32.
    """
    if not isinstance(pixel_values, torch.Tensor):
        return None
    if pixel_values.ndim != 2:
        own_width = pixel_values.ndim > 2 and pixel_values.numel() and pixel_values.shape[-1] == WIDTH
        if own_width and _is_right(pixel_values.reshape(-1, WIDTH)[0].tolist()):
            raise TicketError(
                f"Got tickets of shape {tuple(pixel_values.shape)}. Expected (images, {WIDTH}): the trainer, "
                "as OnlineDPOTrainer of TRL 1.12, repeats pixels of a fixed layout. Pass it rows of "
                "with_tickets and processing_class=policy.tokenizer, or install TRL 1.16."
            )
        return None
    whole = not pixel_values.is_floating_point()
    if pixel_values.shape[1] != WIDTH:
        if whole:
            raise TicketError(
                f"Got integer pixel_values of shape {tuple(pixel_values.shape)}. Expected the tickets that "
                f"the policy's processing class made, {WIDTH} bytes an image, or floating-point pixels."
            )
        return None
    rows = [row for row in pixel_values.tolist() if row != _FILLER]
    right = [_is_right(row) for row in rows]
    if all(right):
        return [_read([int(value) for value in row]) for row in rows]
    if whole:
        raise TicketError(
            f"The ticket of image {right.index(False)} is damaged: its checksum does not fit. Expected "
            "pixel_values as the processing class made them; trainers may repeat, reorder and cast rows."
        )
    return None


def _row(ticket: int, tail: int | None) -> list[int]:
    number = 0 if tail is None else tail + 1
    content = ticket.to_bytes(_TICKET, "little", signed=True) + number.to_bytes(_TAIL, "little")
    return [*content, *_check(content)]


def _read(row: list[int]) -> tuple[int, int | None]:
    number = int.from_bytes(bytes(row[_TICKET : _TICKET + _TAIL]), "little")
    return int.from_bytes(bytes(row[:_TICKET]), "little", signed=True), number - 1 if number else None


def _is_right(row: list[float]) -> bool:
    if not all(0 <= value <= 255 and value == int(value) for value in row):
        return False
    content = bytes(int(value) for value in row[: _TICKET + _TAIL])
    return list(_check(content)) == row[_TICKET + _TAIL :]


def _check(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "little")


# No ticket: every byte of its checksum is wrong.
_FILLER = [0] * (_TICKET + _TAIL) + [byte ^ 0xFF for byte in _check(bytes(_TICKET + _TAIL))]
