"""From tickets to what the stock model takes: `mm_encoder_outputs` and the ids' companions.

Shapes: B rows, T tokens, N images (over all rows, in row order), H the decoder's hidden size.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from ..families import VLMFamily
from ..families.derive_inputs import token_types
from ..processing.images.processed import ProcessedImage
from ..processing.state import ProcessingState
from .features import encode_images, vision_options
from .image_features import joined
from .locate import cached_tokens, locate
from .native import read_native
from .native_inputs import native_tensors
from .ranks import gradients_awaited, is_sharded
from .row_images import NativeImage, RowImages
from .spare_types import without_spare_types
from .transfer import without_waiting

IDLE = "idle_tower_calls"

# Set in a thread that is inside `generate`.
_generating: ContextVar[bool] = ContextVar("hf_vlm_rl_generating", default=False)


@contextmanager
def inside_generate() -> Iterator[None]:
    """Forwards of this thread inside the block belong to one `generate`, whose ranks have met already."""
    token = _generating.set(True)
    try:
        yield
    finally:
        _generating.reset(token)


def generating() -> bool:
    """Whether this thread is inside a `generate` of a policy."""
    return _generating.get()


def resolve(backbone: Any, kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[RowImages] | None]:
    """Turn the tickets in a forward's keyword arguments into image features: `locate` and encode.

    Returns:
        Arguments for the stock forward, and the images of each row; None where tickets do not tell.
    """
    kwargs, rows = locate(backbone, without_spare_types(backbone, kwargs))
    if rows is None and not backbone.family.native_inputs:
        kwargs, rows = read_native(backbone, kwargs)
    if rows is not None:
        # Inside `generate`, ranks have met before its first forward.
        sharded = not _generating.get() and is_sharded(backbone)
        kwargs |= model_inputs(backbone, kwargs["input_ids"], rows, kwargs, sharded)
    elif _wants_types(backbone) and cached_tokens(kwargs):
        # A step of decoding, in training mode: its tokens are text.
        text = torch.zeros_like(kwargs["input_ids"])
        kwargs |= {name: text for name in backbone.family.token_types if kwargs.get(name) is None}
    return kwargs, rows


def _wants_types(backbone: Any) -> bool:
    """Whether a backbone may ask for token types of text, too: some do in training mode."""
    family = backbone.family
    asks = bool(family.token_types) and not family.grids and not family.prefix_attention
    return backbone.training and asks


def model_inputs(
    backbone: Any,
    input_ids: torch.Tensor,
    rows: Sequence[RowImages],
    kwargs: dict[str, Any],
    sharded: bool,
) -> dict[str, Any]:
    """What the stock forward takes in place of tickets: features, their companions, token types.

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
    state: ProcessingState = processing.state
    inputs: dict[str, Any] = {}
    tickets = [ticket for row in rows for ticket in row.tickets]
    native = next((row.native for row in rows if row.native is not None), None)
    family = state.family
    outputs: dict[str, Any] = {}
    if native is not None:
        outputs = {"image": joined([native[ticket].features for ticket in tickets])} if tickets else {}
    elif state.family.native_inputs:
        if tickets:
            mask, cached = kwargs.get("attention_mask"), cached_tokens(kwargs)
            inputs |= native_tensors(backbone, input_ids, rows, mask, cached)
    elif tickets or sharded or gradients_awaited(backbone, backbone.decoder_name):
        options = vision_options(backbone, kwargs)
        outputs, idle = encode_images(backbone, processing, tickets, sharded, options)
        if idle is not None:
            inputs[IDLE] = idle
    if tickets and not state.family.native_inputs:
        inputs["mm_encoder_outputs"] = outputs
        images = native or {ticket: processing.processed(ticket) for ticket in tickets}
        inputs |= _companions(family, [images[ticket] for ticket in tickets], input_ids.device)
    if tickets:
        inside = family.grids and any(row.inside for row in rows)
        if inside and _counts_tokens(kwargs.get("position_ids"), kwargs.get("attention_mask")):
            # Trainers that know nothing of images count tokens; images need positions in 3 dimensions.
            inputs["position_ids"] = None
    # Some backbones want types of every batch that they train on.
    if tickets or _wants_types(backbone):
        # Of native pixels, the caller's own types.
        for name in family.token_types:
            if native is None or kwargs.get(name) is None:
                seen = kwargs.get("attention_mask") is not None
                inputs[name] = _token_types(backbone, name, input_ids, rows, seen)
    return inputs


def _companions(
    family: VLMFamily, images: Sequence[ProcessedImage | NativeImage], device: torch.device
) -> dict[str, torch.Tensor]:
    """What the backbone takes beside the features of images and videos, in their order."""
    named = dict.fromkeys(family.companions, False) | dict.fromkeys(family.video_companions, True)
    companions = {}
    for name, of_videos in named.items():
        numbers = [
            image.inputs[name] for image in images if image.video == of_videos and name in image.inputs
        ]
        if numbers:
            companions[name] = without_waiting(torch.cat(numbers), device)
    return companions


def _token_types(
    backbone: Any, name: str, input_ids: torch.Tensor, rows: Sequence[RowImages], masked: bool
) -> torch.Tensor:
    """(B, T): of what kind each token is, under the backbone's name for it; `masked`: there is a mask."""
    processing = backbone.processing_class
    if backbone.family.prefix_attention:
        types = _prefix_types(input_ids, rows, processing.state.placeholder_id)
        if not masked:
            # Padding behind a row is seen then, and tokenizers give it type 0.
            padding = (input_ids == processing.pad_token_id).long().flip(1).cumprod(dim=1).flip(1)
            types = types * (1 - padding)
        return types
    return token_types(processing, name, input_ids)


def _counts_tokens(positions: torch.Tensor | None, mask: torch.Tensor | None) -> bool:
    """Whether positions only number each row's tokens, so that they say nothing that a caller chose."""
    if positions is None or positions.ndim != 2 or mask is None or mask.shape != positions.shape:
        return False
    counted = mask.long().cumsum(dim=1) - mask.long()  # what TRL's PPO computes
    return bool(((positions == counted) | (mask == 0)).all())


def _prefix_types(input_ids: torch.Tensor, rows: Sequence[RowImages], placeholder_id: int) -> torch.Tensor:
    """(B, T): 0 for the prompt, whose tokens see each other, 1 for the causal completion."""
    types = torch.ones_like(input_ids)
    for row, images in enumerate(rows):
        if images.tail is not None:
            last = int((input_ids[row] == placeholder_id).nonzero()[-1])
            types[row, : last + 1 + images.tail] = 0
    return types
