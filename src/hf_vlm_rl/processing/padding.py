"""Takes rows that the native processor encoded one by one, copies them, and pads them to a batch."""

from typing import Any

from transformers import BatchFeature


def pad_batch(
    tokenizer: Any,
    batch: dict[str, list],
    max_length: int | None,
    padding: bool | str = False,
    padding_side: str | None = None,
    pad_to_multiple_of: int | None = None,
    return_tensors: str | None = None,
) -> BatchFeature:
    """Pad B rows of ids, and what belongs to each token, to one length.

    `padding` is as tokenizers take it; False leaves the rows as they are. `max_length` is for "max_length".
    """
    if padding:
        unpadded = ("offset_mapping", "text_replacement_offsets")  # `pad` does not know these
        extra = {key: batch.pop(key) for key in unpadded if key in batch}
        batch = tokenizer.pad(
            batch,
            padding=padding,
            max_length=max_length,
            padding_side=padding_side,
            pad_to_multiple_of=pad_to_multiple_of,
        )
        side = padding_side or tokenizer.padding_side
        length = len(batch["input_ids"][0])
        if "offset_mapping" in extra:
            # Padding covers no character, as a tokenizer's own padding does.
            extra["offset_mapping"] = [_pad_row(row, (0, 0), length, side) for row in extra["offset_mapping"]]
        batch = dict(batch) | extra
    return BatchFeature(
        batch, tensor_type=return_tensors, skip_tensor_conversion=["text_replacement_offsets"]
    )


def copied(row: dict[str, Any]) -> dict[str, Any]:
    """A copy of an encoded row with new lists, as padding changes lists in place."""
    return {key: list(values) for key, values in row.items()}


def first_row(value: Any) -> list:
    """The first row of what a native processor returned: lists, arrays or tensors."""
    first = value[0]
    return first.tolist() if hasattr(first, "tolist") else list(first)


def _pad_row(row: list, filler: Any, length: int, side: str) -> list:
    missing = [filler] * (length - len(row))
    return missing + row if side == "left" else row + missing
