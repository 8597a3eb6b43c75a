"""From tickets to what the stock model takes: `mm_encoder_outputs` and the ids' companions.

Shapes: B rows, T tokens, N images (over all rows, in row order), H the decoder's hidden size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ImageError, TicketError
from ..processing.state import ProcessingState
from .features import encode_images
from .ranks import gradients_awaited, is_sharded

IDLE = "idle_tower_calls"
CARRIERS = ("pixel_values", "image_grid_thw")


@dataclass(frozen=True)
class RowImages:
    """The images of one row.

    Attributes:
        tickets: In the order of the row's placeholders.
        tail: Prompt tokens after the last image token; None if not carried.
    """

    tickets: tuple[int, ...]
    tail: int | None = None


def carries_tickets(pixel_values: Any) -> bool:
    """Whether `pixel_values` holds tickets rather than pixels."""
    return isinstance(pixel_values, torch.Tensor) and not pixel_values.is_floating_point()


def tickets_inside(backbone: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a forward's ids hold placeholders that only a ticket inside the ids can explain."""
    pixel_values, input_ids = kwargs.get("pixel_values"), kwargs.get("input_ids")
    if pixel_values is not None or input_ids is None or kwargs.get("mm_encoder_outputs"):
        return False
    placeholder_id = backbone.processing_class._vlm.placeholder_id
    return not _continues(kwargs) and bool((input_ids == placeholder_id).any())


def resolve(backbone: Any, kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[RowImages] | None]:
    """Turn the tickets in a forward's keyword arguments into image features: `locate` and encode.

    Returns:
        Arguments for the stock forward, and the images of each row; None where tickets do not tell.
    """
    kwargs, rows = locate(backbone, kwargs)
    if rows is not None:
        # Inside `generate`, ranks have met before its first forward.
        sharded = not backbone.generating and is_sharded(backbone)
        kwargs |= model_inputs(backbone, kwargs["input_ids"], rows, kwargs, sharded)
    return kwargs, rows


def locate(backbone: Any, kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[RowImages] | None]:
    """Find the images of each row and put clean ids in place of carried tickets; nothing is encoded.

    Args:
        backbone: A policy's multimodal backbone.
        kwargs: The arguments of its forward. Tickets come as integer `pixel_values`, or inside
            `input_ids`. Floating-point `pixel_values`, ready `mm_encoder_outputs`, rows without
            images and cached decoding steps pass through untouched.

    Returns:
        The arguments without tickets, and the images of each row; None where tickets do not tell.

    Raises:
        ImageError: If a row has placeholders but no image, or another number of them.
        TicketError: If a ticket is damaged or its image is gone.
    """
    pixel_values, input_ids = kwargs.get("pixel_values"), kwargs.get("input_ids")
    beside = carries_tickets(pixel_values)
    if kwargs.get("mm_encoder_outputs") or (pixel_values is not None and not beside):
        return kwargs, None
    processing = backbone.processing_class
    if input_ids is None:
        if beside:
            raise ImageError("Got tickets without input_ids. Pass input_ids, not inputs_embeds.")
        return kwargs, None
    if beside:
        rows = _rows_beside(processing, input_ids, pixel_values)
    elif _continues(kwargs):
        return kwargs, None
    elif tickets_inside(backbone, kwargs):
        input_ids, rows = _rows_inside(processing, input_ids)
    else:
        return kwargs, [RowImages(())] * len(input_ids)
    kwargs = {key: value for key, value in kwargs.items() if key not in CARRIERS}
    return kwargs | {"input_ids": input_ids}, rows


def _rows_beside(processing: Any, input_ids: torch.Tensor, carried: torch.Tensor) -> list[RowImages]:
    """Deal the carried tickets to the rows, in order, by the rows' placeholder counts."""
    counts = (input_ids == processing._vlm.placeholder_id).sum(dim=1).tolist()
    remaining = carried.tolist()
    rows = []
    for row, count in enumerate(counts):
        own, tokens = [], 0
        while tokens < count and remaining:
            own.append(remaining.pop(0))
            tokens += _tokens(processing, own[-1][0], row)
        if tokens != count:
            raise ImageError(
                f"Row {row} has {count} image tokens, but its next {len(own)} images have {tokens}. "
                "Tickets must come in the order of the rows, and no image may be cut by a length "
                "limit; set max_length=None (DPO, SFT) or raise it."
            )
        tail = own[-1][1] if own and len(own[-1]) > 1 else None
        rows.append(RowImages(tuple(ticket for ticket, *_ in own), tail))
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
        rows.append(RowImages(tuple(store.source(ticket) for ticket in tickets), tail))
    return torch.tensor(clean, dtype=input_ids.dtype, device=input_ids.device), rows


def _tokens(processing: Any, ticket: int, row: int) -> int:
    try:
        return processing.processed(ticket).tokens
    except TicketError as error:
        raise TicketError(f"Row {row}: {error}") from error


def _continues(kwargs: Mapping[str, Any]) -> bool:
    cache = kwargs.get("past_key_values")
    return cache is not None and cache.get_seq_length() > 0


def model_inputs(
    backbone: Any,
    input_ids: torch.Tensor,
    rows: Sequence[RowImages],
    kwargs: dict[str, Any],
    sharded: bool,
) -> dict[str, Any]:
    """What the stock forward takes in place of tickets: features, grids, token types.

    Args:
        backbone: A policy's backbone.
        input_ids: (B, T), clean.
        rows: The images of each row.
        kwargs: The other arguments of the forward.
        sharded: See `encode_images`.

    Returns:
        Arguments, and under `IDLE` what the loss must depend on, if anything.
    """
    processing = backbone.processing_class
    state: ProcessingState = processing._vlm
    inputs: dict[str, Any] = {}
    tickets = [ticket for row in rows for ticket in row.tickets]
    if tickets or sharded or gradients_awaited(backbone, state.family.language.rpartition(".")[2]):
        features, idle = encode_images(backbone, processing, tickets, sharded)
        if idle is not None:
            inputs[IDLE] = idle
    if tickets:
        inputs["mm_encoder_outputs"] = {"image": features}
        if state.family.grids:
            grids = [processing.processed(ticket).inputs["image_grid_thw"] for ticket in tickets]
            inputs["image_grid_thw"] = torch.cat(grids).to(input_ids.device)
            positions = kwargs.get("position_ids")
            if positions is not None and positions.ndim == 2:
                # 2-D positions would silently replace the 3-D ones that the images need.
                inputs["position_ids"] = None
    if state.family.token_types is not None and tickets:
        if state.family.prefix_attention:
            types = _prefix_types(input_ids, rows, state.placeholder_id)
        else:
            types = (input_ids == state.placeholder_id).long()
        inputs[state.family.token_types] = types
    return inputs


def _prefix_types(input_ids: torch.Tensor, rows: Sequence[RowImages], placeholder_id: int) -> torch.Tensor:
    """(B, T): 0 for the prompt, whose tokens see each other, 1 for the causal completion."""
    types = torch.ones_like(input_ids)
    for row, images in enumerate(rows):
        if images.tail is not None:
            last = int((input_ids[row] == placeholder_id).nonzero()[-1])
            types[row, : last + 1 + images.tail] = 0
    return types
