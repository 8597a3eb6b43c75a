"""From tickets to what the stock model takes: `mm_encoder_outputs` and the ids' companions.

Shapes: B rows, T tokens, N images (over all rows, in row order), H the decoder's hidden size.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch
from transformers.utils import logging

from ..._ranks import most
from ..._scoped import scoped
from ...errors import UnsupportedModelError
from ...families import VLMFamily
from ...families.derive_inputs import token_types
from ...processing.images.processed import ProcessedImage
from ...processing.state import ProcessingState
from ..ranks import gradients_awaited, is_sharded
from ..report import Refused
from ..transfer import without_waiting
from .features import encode_images, vision_options
from .locate import cached_tokens, locate
from .native_inputs import native_tensors
from .row_images import Rows
from .spare_types import without_spare_types

logger = logging.get_logger(__name__)

IDLE = "idle_tower_calls"

# Why stock computes a forward.
NATIVE_PIXELS = "the images are native pixels, and no tickets"

PROCESSING_CLASS_FORGOTTEN = (
    "{model} trains on native pixels, which the stock processor makes: images are encoded for every row, and "
    "prompts are not shared. The results are right. Pass processing_class=policy.processing_class to the "
    "trainer, where it was probably forgotten."
)

# True in a thread that is inside `generate`.
_generating: ContextVar[bool] = ContextVar("hf_vlm_rl_generating", default=False)


def inside_generate() -> AbstractContextManager[None]:
    """Inside the block, forwards of this thread belong to one `generate`, whose ranks have agreed already."""
    return scoped(_generating, True)


def generating() -> bool:
    """Whether this thread is inside a `generate` of a policy."""
    return _generating.get()


def resolve(backbone: Any, kwargs: dict[str, Any]) -> tuple[dict[str, Any], Rows | None]:
    """Turn the tickets in a forward's keyword arguments into image features: `locate` and encode.

    Returns:
        Arguments for the stock forward, and the rows with their images; None if no ticket tells these.
    """
    kwargs, rows = locate(backbone, without_spare_types(backbone, kwargs))
    if rows is not None:
        # Ranks that are inside `generate` have agreed on their calls of the tower before its first forward.
        sharded = not _generating.get() and is_sharded(backbone)
        kwargs |= model_inputs(backbone, kwargs["input_ids"], rows, kwargs, sharded)
    elif kwargs.get("pixel_values") is not None:
        _see_native_pixels(backbone)
    elif backbone.training and _wants_types(backbone, kwargs) and cached_tokens(kwargs):
        # A decoding step in training mode: its tokens are text.
        text = torch.zeros_like(kwargs["input_ids"])
        kwargs |= {name: text for name in backbone.family.token_types if kwargs.get(name) is None}
    return kwargs, rows


def _see_native_pixels(backbone: Any) -> None:
    """Note that a forward on native pixels does not share; warn if its trainer lacks the processing class."""
    if backbone.sharing.mode is not False:
        backbone.refuse_to_share(Refused(NATIVE_PIXELS))
    if backbone.training and torch.is_grad_enabled() and not backbone.family.native_inputs:
        logger.warning_once(PROCESSING_CLASS_FORGOTTEN.format(model=type(backbone).__name__))


def _wants_types(backbone: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether token types of text may matter: some ask for them in training mode, and some make other masks.

    Without types, Molmo2 makes no mask of a row without padding, and then reads one from its positions.
    """
    family, positions = backbone.family, kwargs.get("position_ids")
    asks = bool(family.token_types) and not family.grids and not family.prefix_attention
    return asks and (backbone.training or positions is not None)


def model_inputs(
    backbone: Any, input_ids: torch.Tensor, rows: Rows, kwargs: dict[str, Any], sharded: bool
) -> dict[str, Any]:
    """What the stock forward takes in place of tickets: features, their companions, token types.

    `input_ids` (B, T) have placeholders and no tickets. Token types made of `rows` are noted there; `sharded`
    is that of `encode_images`. Under `IDLE`, there may be the scalar 0 of `encode_images`.
    """
    processing = backbone.processing_class
    state: ProcessingState = processing.state
    inputs: dict[str, Any] = {}
    tickets, family = rows.tickets, state.family
    outputs: dict[str, Any] = {}
    if sharded and (family.native_inputs or family.equal_ranks):
        _check_alike(backbone, len(tickets), input_ids.device)
    if family.native_inputs:
        if tickets:
            mask, cached = kwargs.get("attention_mask"), cached_tokens(kwargs)
            inputs |= native_tensors(backbone, input_ids, rows.images, mask, cached)
    elif tickets or sharded or gradients_awaited(backbone, backbone.decoder_name):
        options = vision_options(backbone, kwargs)
        outputs, idle = encode_images(backbone, processing, tickets, input_ids.device, sharded, options)
        if idle is not None:
            inputs[IDLE] = idle
    if tickets and not state.family.native_inputs:
        inputs["mm_encoder_outputs"] = outputs
        images = [processing.processed(ticket) for ticket in tickets]
        inputs |= _companions(family, images, input_ids.device)
    if tickets:
        written = family.grids and any(row.inside for row in rows.images)
        if written and _counts_tokens(kwargs.get("position_ids"), kwargs.get("attention_mask")):
            # The trainer has counted tokens as for text; without positions, the backbone counts in 3D.
            inputs["position_ids"] = None
    if tickets or _wants_types(backbone, kwargs):
        for name in family.token_types:
            masked = kwargs.get("attention_mask") is not None
            rows.types[name] = _token_types(backbone, name, rows, masked)
            inputs[name] = without_waiting(rows.types[name], input_ids.device)
    return inputs


def _check_alike(backbone: Any, images: int, device: torch.device) -> None:
    """Refuse what would end in ranks that wait for each other: stock calls modules as images ask for it.

    Raises:
        UnsupportedModelError: On all ranks, if their batches have unequal numbers of images.
    """
    highest, lowest = most([images, -images], device)
    if highest != -lowest:
        raise UnsupportedModelError(
            f"Got batches with {-lowest} to {highest} images on different ranks. Weights that are spread "
            f"over ranks (ZeRO-3, FSDP) need equal calls on all ranks, and {type(backbone).__name__} calls "
            "modules as its images ask for it. Expected batches with as many images on every rank: sort the "
            "rows so, or use ZeRO-2 or DDP, where weights are whole."
        )


def _companions(
    family: VLMFamily, images: Sequence[ProcessedImage], device: torch.device
) -> dict[str, torch.Tensor]:
    """The backbone's further tensors of images and videos (grids, sizes), in the order of their features."""
    names = dict.fromkeys(family.companions, False) | dict.fromkeys(family.video_companions, True)
    companions = {}
    for name, of_videos in names.items():
        tensors = [
            image.inputs[name] for image in images if image.video == of_videos and name in image.inputs
        ]
        if tensors:
            companions[name] = without_waiting(torch.cat(tensors), device)
    return companions


def _token_types(backbone: Any, name: str, rows: Rows, masked: bool) -> torch.Tensor:
    """(B, T), on the host: kinds of the tokens, for the backbone's argument `name`; `masked`: by a mask."""
    processing, input_ids = backbone.processing_class, rows.copy.ids
    if not backbone.family.prefix_attention:
        return token_types(processing, name, input_ids)
    # 0 for the prompt, whose tokens see each other, 1 for the causal completion.
    types = torch.ones_like(input_ids)
    for row, images in enumerate(rows.images):
        if images.tail is not None:
            last = int((input_ids[row] == processing.state.placeholder_id).nonzero()[-1])
            types[row, : last + 1 + images.tail] = 0
    if not masked:
        # Without a mask, tokens see the padding behind their row, and tokenizers give it type 0.
        padding = (input_ids == processing.pad_token_id).long().flip(1).cumprod(dim=1).flip(1)
        types = types * (1 - padding)
    return types


def _counts_tokens(positions: torch.Tensor | None, mask: torch.Tensor | None) -> bool:
    """Whether positions only number each row's tokens: then the caller has not chosen them."""
    if positions is None or positions.ndim != 2 or mask is None or mask.shape != positions.shape:
        return False
    counted = mask.long().cumsum(dim=1) - mask.long()  # what TRL's PPO computes
    return bool(((positions == counted) | (mask == 0)).all())
