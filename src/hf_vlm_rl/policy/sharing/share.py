"""From a backbone's resolved arguments to the layout that its decoder takes."""

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ..foreign_hooks import foreign_hook
from ..ranks import is_sharded, ranks
from ..row_images import RowImages
from .micro_batches import is_training
from .self_check import disagreement

# The bits of a ticket by which images are told apart, as many as a signed number holds beside ids.
IMAGE = (1 << 62) - 1


def share_prefixes(backbone: Any, kwargs: dict[str, Any], rows: Sequence[RowImages]) -> dict[str, Any]:
    """What to add to the arguments of the stock backbone: a layout, or nothing.

    Args:
        backbone: A policy's backbone.
        kwargs: Its arguments after `resolve`.
        rows: The images of each row.
    """
    ids = kwargs["input_ids"]
    switch = backbone.sharing
    tokens = functools.cache(lambda: token_keys(backbone, kwargs, rows))
    if switch.way_in_words is not None and is_training(backbone):
        switch.micro_batches.see(backbone, tokens(), kwargs.get("attention_mask"))
    layout = switch.layout(ids, tokens, kwargs)
    if layout is None:
        return {}
    # Asked late: a look at every module's hooks takes as long as finding the layout.
    reason = watched(backbone) or _uneven(backbone)
    if reason is not None:
        switch.refuse(reason, lasting=False)
    if reason is not None or not agrees(backbone):
        return {}
    return {switch.way: layout.to(ids.device)}


def watched(backbone: Any) -> str | None:
    """Why the decoder must run as it stands: a hook is on it, or its config asks for what its layers give.

    Arguments that ask for the same are no arguments that packing knows; a config speaks to the decoder alone.
    """
    decoder = backbone.decoder
    for name in ("attentions", "hidden_states", *decoder.can_record_outputs):
        if getattr(decoder.config, f"output_{name}", False):  # configs have those that their model can record
            return f"the model's config has output_{name}"
    home = foreign_hook(decoder)
    return None if home is None else f"a hook of {home} is on the decoder"


def _uneven(backbone: Any) -> str | None:
    """Why ranks would run modules unequally often and wait for each other, as not all may share; or None."""
    if backbone.sharing.way_in_words in ("cached", "mixed") and is_sharded(backbone):
        return "weights are spread over ranks, and shared rows run some modules twice"
    return None


def agrees(backbone: Any) -> bool:
    """Whether the decoder gives the same when rows share; asked once per way, dtype and attention kernels."""
    switch = backbone.sharing
    decoder = backbone.decoder
    kernel, attention = decoder.config._attn_implementation, switch.attention
    kind = (switch.way, decoder.dtype, decoder.device, kernel, attention.setting)
    # Alone only: sharded models wait in an extra forward for ranks that may not make it.
    if kind in switch.checked or ranks() > 1 or decoder.device.type == "meta":
        return True
    reason = disagreement(decoder, switch.way, attention)
    if reason is not None and attention.leave_flex(f"the self-check failed: {reason}"):
        reason = disagreement(decoder, switch.way, attention)
    if reason is None:
        switch.checked.add(kind)
    else:
        switch.refuse(f"the self-check failed: {reason}")
    return reason is None


def token_keys(backbone: Any, kwargs: dict[str, Any], rows: Sequence[RowImages]) -> dict[str, Any]:
    """What `find_layout` takes besides the mask.

    Args:
        backbone: A policy's backbone.
        kwargs: Its arguments; `input_ids` (B, T) with clean placeholders.
        rows: The images of each row.
    """
    keys = keys_of_rows(backbone, kwargs["input_ids"], rows)
    # In some models, image tokens see each other in both directions, as do those that begin and end an image,
    # or all of a prompt that has token types.
    together = keys < 0
    for name in backbone.family.token_types:
        types = kwargs.get(name)
        if types is not None:
            together |= ((types == 0) if backbone.family.prefix_attention else (types != 0)).cpu()
    joined = torch.zeros_like(together)
    joined[:, 1:] = together[:, 1:] & together[:, :-1]
    # Otherwise positions are columns, which some decoders take for more than distances.
    images = any(row.tickets for row in rows)
    counted = kwargs.get("position_ids") is not None or (backbone.family.grids and images)
    return {"keys": keys, "joined": joined, "aligned": not counted}


def keys_of_rows(backbone: Any, ids: torch.Tensor, rows: Sequence[RowImages]) -> torch.Tensor:
    """Ids in which image tokens are told apart by their image.

    Args:
        backbone: A policy's backbone.
        ids: (B, T), with clean placeholders.
        rows: The images of each row.

    Returns:
        (B, T) on the CPU: the ids, with a negative number of the image at image tokens.
    """
    keys = ids.cpu().clone()
    places = backbone.processing_class.state.marks(keys)
    for row, images in enumerate(rows):
        marks = [
            -1 - (ticket & IMAGE)
            for ticket, length in zip(images.tickets, images.lengths, strict=True)
            for _ in range(length)
        ]
        if marks:
            keys[row, places[row]] = torch.tensor(marks)
    return keys
