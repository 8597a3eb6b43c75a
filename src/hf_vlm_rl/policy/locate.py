"""Which tickets belong to which row of a forward, and the ids without them.

Shapes: B rows, T tokens, N images (over all rows, in row order).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ..errors import ImageError, TicketError
from ..processing.carriers import unpack
from .row_images import RowImages

CARRIERS = ("pixel_values", "image_grid_thw")


def tickets_inside(backbone: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a forward's ids hold placeholders that only a ticket inside the ids can explain."""
    input_ids = kwargs.get("input_ids")
    if input_ids is None or kwargs.get("mm_encoder_outputs") or _has_pixels(kwargs):
        return False
    if cached_tokens(kwargs) and input_ids.shape[1] == 1:
        return False  # a step of decoding: no ticket is as short as one token
    return bool((input_ids == backbone.processing_class.state.placeholder_id).any())


def _has_pixels(kwargs: Mapping[str, Any]) -> bool:
    """Whether a forward is given images as pixels or tickets, under any of the names that models have."""
    return any(
        "pixel_values" in name and not name.endswith("videos") and value is not None
        for name, value in kwargs.items()
    )


def locate(
    backbone: Any, kwargs: dict[str, Any], cached: int = 0
) -> tuple[dict[str, Any], list[RowImages] | None]:
    """Find the images of each row and put clean ids in place of carried tickets; nothing is encoded.

    Args:
        backbone: A policy's multimodal backbone.
        kwargs: The arguments of its forward. Tickets come in `pixel_values` (see `carriers`), or inside
            `input_ids`. Floating-point `pixel_values`, ready `mm_encoder_outputs`, rows without
            images and cached decoding steps pass through untouched.
        cached: How many of the first tokens of `input_ids` the model has seen (`generate` is given
            whole rows, a forward only the rest). Their images are left out; tickets beside the ids may
            be those of all images or of the new ones alone.

    Returns:
        The arguments without tickets, and the new images of each row; None where tickets do not tell.

    Raises:
        ImageError: If a row has placeholders but no image, or another number of them.
        TicketError: If a ticket is damaged or its image is gone.
    """
    pixel_values, input_ids = kwargs.get("pixel_values"), kwargs.get("input_ids")
    if kwargs.get("mm_encoder_outputs"):
        return kwargs, None
    carried = unpack(pixel_values)
    if carried is None and _has_pixels(kwargs):
        return kwargs, None
    processing = backbone.processing_class
    if input_ids is None:
        if carried is not None:
            raise ImageError("Got tickets without input_ids. Pass input_ids, not inputs_embeds.")
        return kwargs, None
    if carried is not None:
        rows = _rows_beside(processing, input_ids, carried, cached)
    elif tickets_inside(backbone, kwargs):
        input_ids, rows = _rows_inside(processing, input_ids)
        rows = _behind(processing, rows, input_ids, cached)
    elif cached_tokens(kwargs):
        return kwargs, None
    else:
        return kwargs, [RowImages()] * len(input_ids)
    kwargs = {key: value for key, value in kwargs.items() if key not in CARRIERS}
    return kwargs | {"input_ids": input_ids}, rows


def _rows_beside(
    processing: Any, input_ids: torch.Tensor, carried: list[tuple[int, int | None]], cached: int
) -> list[RowImages]:
    """The images behind the cached tokens, from tickets of all images or of those alone."""
    if cached:
        places = input_ids == processing.state.placeholder_id
        tokens = sum(_tokens(processing, ticket, 0) for ticket, _ in carried)
        if tokens == int(places.sum()):
            return _behind(processing, _deal(processing, input_ids, carried), input_ids, cached)
    return _deal(processing, input_ids[:, cached:], carried)


def _behind(processing: Any, rows: list[RowImages], input_ids: torch.Tensor, cached: int) -> list[RowImages]:
    """The images of rows whose tokens lie behind the cached ones.

    Raises:
        ImageError: If the cache ends inside an image.
    """
    if not cached:
        return rows
    seen = (input_ids[:, :cached] == processing.state.placeholder_id).sum(dim=1).tolist()
    left = []
    for number, (row, tokens) in enumerate(zip(rows, seen, strict=True)):
        first = 0
        while tokens > 0 and first < len(row.lengths):
            tokens -= row.lengths[first]
            first += 1
        if tokens != 0:
            raise ImageError(
                f"Row {number}: the {cached} cached tokens end inside an image. Expected a cache that ends "
                "before or after it."
            )
        left.append(replace(row, tickets=row.tickets[first:], lengths=row.lengths[first:]))
    return left


def _deal(processing: Any, input_ids: torch.Tensor, carried: list[tuple[int, int | None]]) -> list[RowImages]:
    """Deal the carried tickets to the rows, in order, by the rows' placeholder counts."""
    counts = (input_ids == processing.state.placeholder_id).sum(dim=1).tolist()
    remaining = list(carried)
    rows = []
    for row, count in enumerate(counts):
        dealt, lengths = [], []
        while sum(lengths) < count and remaining:
            dealt.append(remaining.pop(0))
            lengths.append(_tokens(processing, dealt[-1][0], row))
        if sum(lengths) != count:
            raise ImageError(
                f"Row {row} has {count} image tokens, but its next {len(dealt)} images have {sum(lengths)}. "
                "Tickets must come in the order of the rows, and no image may be cut by a length "
                "limit; set max_length=None (DPO, SFT) or raise it."
            )
        tail = dealt[-1][1] if dealt else None
        rows.append(RowImages(tuple(ticket for ticket, _ in dealt), tuple(lengths), tail))
    if remaining:
        raise ImageError(
            f"Got {len(carried)} images for {len(counts)} rows, {len(remaining)} more than their "
            "placeholders take. Pass one image per placeholder; where a length limit cut images off, "
            "set max_length=None (DPO, SFT) or raise it."
        )
    return rows


def _rows_inside(processing: Any, input_ids: torch.Tensor) -> tuple[torch.Tensor, list[RowImages]]:
    """Read the tickets written into the ids and restore the placeholders."""
    clean, rows = [], []
    for row, ids in enumerate(input_ids.tolist()):
        try:
            restored, tickets = processing.codec.read(
                ids, lambda ticket, row=row: _tokens(processing, ticket, row)
            )
        except TicketError as error:
            raise TicketError(f"Row {row}: {error}") from error
        store = processing.image_store
        tail = store.row(tickets[-1]).tail if tickets else None
        clean.append(restored)
        sources = tuple(store.source(ticket) for ticket in tickets)
        lengths = tuple(_tokens(processing, ticket, row) for ticket in sources)
        rows.append(RowImages(sources, lengths, tail, inside=True))
    return torch.tensor(clean, dtype=input_ids.dtype, device=input_ids.device), rows


def restored(backbone: Any, input_ids: torch.Tensor) -> tuple[torch.Tensor, list[RowImages]]:
    """Ids (B, T) with placeholders in the place of tickets, and the images of each row.

    Raises:
        TicketError: If a ticket is damaged or its image is gone.
    """
    return _rows_inside(backbone.processing_class, input_ids)


def _tokens(processing: Any, ticket: int, row: int) -> int:
    try:
        return processing.processed(ticket).tokens
    except TicketError as error:
        raise TicketError(f"Row {row}: {error}") from error


def cached_tokens(kwargs: Mapping[str, Any]) -> int:
    """How many tokens of each row are in the cache that a call was given."""
    cache = kwargs.get("past_key_values")
    return 0 if cache is None else int(cache.get_seq_length())
