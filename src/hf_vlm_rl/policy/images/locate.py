"""Which tickets belong to which row of a forward, and the ids without them.

Shapes: B rows, T tokens, N images (over all rows, in row order).
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch

from ..._scoped import scoped
from ...compat import CACHE
from ...errors import ImageError, TicketError
from ...processing.tickets.beside_ids import decode_tickets
from ...processing.tickets.in_ids import SETTINGS
from ..transfer import without_waiting
from .row_images import HostCopy, RowImages, Rows

CARRIERS = ("pixel_values", "image_grid_thw")


# True in a thread whose forwards draft tokens for another model's assisted generation.
_drafting: ContextVar[bool] = ContextVar("hf_vlm_rl_drafting", default=False)


def drafting() -> AbstractContextManager[None]:
    """Inside the block, forwards of this thread do not ask for the tickets of placeholders.

    transformers gives the assistant of assisted generation no image; the main model checks all its tokens.
    """
    return scoped(_drafting, True)


def tickets_inside(backbone: Any, kwargs: Mapping[str, Any], cached: int = 0) -> bool:
    """Whether a forward's ids hold placeholders that only a ticket inside the ids can explain.

    The model has seen the first `cached` tokens of `input_ids`. Their placeholders need no ticket any more,
    but the ids may still hold one.
    """
    input_ids = kwargs.get("input_ids")
    if input_ids is None or kwargs.get("mm_encoder_outputs") or has_pixels(kwargs) or _drafting.get():
        return False
    if cached_tokens(kwargs) and input_ids.shape[1] == 1:
        return False  # a decoding step: every ticket is longer than one token
    marks = backbone.processing_class.state.marks(input_ids)
    if bool(marks[:, cached:].any()):
        return True
    return bool(marks.any()) and _holds_tickets(backbone.processing_class, input_ids)


def has_pixels(kwargs: Mapping[str, Any]) -> bool:
    """Whether a forward gets images or videos, as pixels or carried tickets, under any name of theirs."""
    return any("pixel_values" in name and value is not None for name, value in kwargs.items())


def locate(backbone: Any, kwargs: dict[str, Any], cached: int = 0) -> tuple[dict[str, Any], Rows | None]:
    """Find the images of each row and put clean ids in place of carried tickets; nothing is encoded.

    Args:
        backbone: A policy's multimodal backbone.
        kwargs: The arguments of its forward. Tickets are carried in `pixel_values` (see `beside_ids`) or
            written inside `input_ids`. Floating-point `pixel_values`, ready `mm_encoder_outputs`, rows
            without images and cached decoding steps pass through untouched.
        cached: How many of the first tokens of `input_ids` the model has seen (`generate` gets whole
            rows, a forward only the rest). Their images are left out; carried tickets may be those of
            all images or of the new ones alone.

    Returns:
        The arguments without tickets, and the rows with their new images; None if no ticket tells these.

    Raises:
        ImageError: If a row has placeholders but no image, or another number of them.
        TicketError: If a ticket is damaged or its image is gone.
    """
    pixel_values, input_ids = kwargs.get("pixel_values"), kwargs.get("input_ids")
    if kwargs.get("mm_encoder_outputs"):
        return kwargs, None
    copy = HostCopy(kwargs)
    carried = decode_tickets(copy.carried) if pixel_values is not None else None
    processing = backbone.processing_class
    if carried is None and has_pixels(kwargs):
        if pixel_values is not None or input_ids is None:
            return kwargs, None
        if _holds_tickets(processing, copy.ids):  # stock would read them as words
            raise ImageError(
                "Got tickets inside the ids beside native tensors of videos. Encode the videos with the "
                "policy's processing class, too (encode_prompt)."
            )
        # Native tensors of videos: the gates of sharing refuse these arguments, which the table lacks.
        return kwargs, Rows([RowImages()] * len(input_ids), copy)
    if input_ids is None:
        if carried is not None:
            raise ImageError("Got tickets without input_ids. Pass input_ids, not inputs_embeds.")
        return kwargs, None
    clean = None
    if carried is not None:
        ids = copy.ids
        try:
            images = _rows_beside(processing, ids, carried, cached)
        except ImageError:
            # Digits of tickets written into the ids replaced placeholders, so counting these has to fail.
            if processing.state.videos.refusal or not _holds_tickets(processing, ids):
                raise
            clean, images = rows_inside(processing, ids, carried, processing.image_store.knows)
            ids, images = clean, _behind(processing, images, clean, cached)
        _check_kinds(processing, ids[:, cached:], images)
    elif tickets_inside(backbone, kwargs, cached):
        clean, images = rows_inside(processing, copy.ids)
        images = _behind(processing, images, clean, cached)
    elif cached_tokens(kwargs):
        return kwargs, None
    else:
        return kwargs, Rows([RowImages()] * len(input_ids), copy)
    kwargs = {key: value for key, value in kwargs.items() if key not in CARRIERS}
    if clean is not None:
        kwargs["input_ids"] = without_waiting(clean, input_ids.device)
        copy = HostCopy({"input_ids": clean, "attention_mask": copy.mask})
    return kwargs, Rows(images, copy)


def _rows_beside(
    processing: Any, input_ids: torch.Tensor, carried: list[tuple[int, int | None]], cached: int
) -> list[RowImages]:
    """The images behind the cached tokens; `carried` has the tickets of all images, or of these alone."""
    if cached:
        tokens = sum(_tokens(processing, ticket, 0) for ticket, _ in carried)
        if tokens == int(processing.state.marks(input_ids).sum()):
            return _behind(processing, _deal(processing, input_ids, carried), input_ids, cached)
    return _deal(processing, input_ids[:, cached:], carried)


def _behind(processing: Any, rows: list[RowImages], input_ids: torch.Tensor, cached: int) -> list[RowImages]:
    """The rows without the images whose tokens are cached.

    Raises:
        ImageError: If the cache ends inside an image.
    """
    if not cached:
        return rows
    cached_counts = processing.state.marks(input_ids[:, :cached]).sum(dim=1).tolist()
    new_rows = []
    for number, (row, tokens) in enumerate(zip(rows, cached_counts, strict=True)):
        first = 0
        while tokens > 0 and first < len(row.lengths):
            tokens -= row.lengths[first]
            first += 1
        if tokens != 0:
            raise ImageError(
                f"Row {number}: the {cached} cached tokens end inside an image. Expected a cache that ends "
                "before or after it."
            )
        new_rows.append(replace(row, tickets=row.tickets[first:], lengths=row.lengths[first:]))
    return new_rows


def _deal(processing: Any, input_ids: torch.Tensor, carried: list[tuple[int, int | None]]) -> list[RowImages]:
    """Deal the carried tickets to the rows, in order, by the rows' placeholder counts."""
    counts = processing.state.marks(input_ids).sum(dim=1).tolist()
    remaining = list(carried)
    rows = []
    for row, count in enumerate(counts):
        dealt: list[Any] = []
        lengths: list[int] = []
        while sum(lengths) < count and remaining:
            dealt.append(remaining.pop(0))
            lengths.append(_tokens(processing, dealt[-1][0], row))
        if sum(lengths) != count:
            raise ImageError(
                f"Row {row} has {count} image tokens, but its next {len(dealt)} images have {sum(lengths)}. "
                "Tickets must come in the order of the rows, and no image may be cut by a length "
                f"limit; set max_length=None (DPO, SFT) or raise it.{SETTINGS}"
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


def _holds_tickets(processing: Any, input_ids: torch.Tensor) -> bool:
    known = processing.image_store.knows
    return any(processing.codec.has_ticket(ids, known) for ids in input_ids.tolist())


def _check_kinds(processing: Any, input_ids: torch.Tensor, rows: list[RowImages]) -> None:
    """Refuse videos where the ids have images, and the other way round."""
    video_id = processing.state.video_id
    if video_id is None:
        return
    counts = (input_ids == video_id).sum(dim=1).tolist()
    for row, (count, images) in enumerate(zip(counts, rows, strict=True)):
        tokens = sum(
            length
            for ticket, length in zip(images.tickets, images.lengths, strict=True)
            if processing.processed(ticket).output == "video"
        )
        if tokens != count:
            raise ImageError(
                f"Row {row} has {count} video tokens, but its videos have {tokens}. Tickets must come in the "
                "order of the rows' placeholders."
            )


def rows_inside(
    processing: Any,
    input_ids: torch.Tensor,
    carried: Iterable[tuple[int, int | None]] = (),
    known: Callable[[int], bool] | None = None,
) -> tuple[torch.Tensor, list[RowImages]]:
    """Ids (B, T), on the host, with placeholders in the place of tickets, and the images of each row.

    `carried` has tickets for placeholders that have none written behind them. With such tickets, `known` must
    tell whether a ticket exists.

    Raises:
        ImageError: If more tickets are carried than placeholders take.
        TicketError: If a ticket is damaged or its image is gone.
    """
    beside = iter(carried)
    clean, rows = [], []
    for row, ids in enumerate(input_ids.tolist()):
        try:
            restored, tickets = processing.codec.read(
                ids,
                lambda ticket: processing.processed(ticket).tokens,
                (ticket for ticket, _ in beside),
                known,
            )
        except TicketError as error:
            raise TicketError(f"Row {row}: {error}") from error
        store = processing.image_store
        tail = store.row(tickets[-1]).tail if tickets else None
        clean.append(restored)
        sources = tuple(store.source(ticket) for ticket in tickets)
        lengths = tuple(_tokens(processing, ticket, row) for ticket in sources)
        rows.append(RowImages(sources, lengths, tail, inside=True))
    if (unused := sum(1 for _ in beside)) > 0:
        raise ImageError(
            f"Got {unused} images more than the placeholders of {len(rows)} rows take. Pass one image per "
            "placeholder; where a length limit cut images off, set max_length=None (DPO, SFT) or raise it."
        )
    return torch.tensor(clean, dtype=input_ids.dtype), rows


def _tokens(processing: Any, ticket: int, row: int) -> int:
    try:
        return processing.processed(ticket).tokens
    except TicketError as error:
        raise TicketError(f"Row {row}: {error}") from error


def cached_tokens(kwargs: Mapping[str, Any]) -> int:
    """How many tokens of each row are in the cache that a call was given."""
    cache = kwargs.get(CACHE)
    return 0 if cache is None else int(cache.get_seq_length())
