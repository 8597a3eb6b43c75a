"""Turns tickets into exactly the tensors that the native processor makes for a batch.

Some models take no ready image features, or their features of an image depend on the other images of the
batch. The stock forward then encodes each row's images itself, and no prompt is shared.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import ImageError
from ...processing.native_call import call_on_ids
from .row_images import RowImages

NOT_SHARED = (
    "native_inputs: the model gets the native processor's tensors for each batch, so no image and no prompt "
    "is computed once"
)


def native_tensors(
    backbone: Any, input_ids: torch.Tensor, rows: Sequence[RowImages], mask: torch.Tensor | None, cached: int
) -> dict[str, Any]:
    """The arguments that the stock forward takes with the ids of rows with images.

    `input_ids` (B, T) have placeholders and no tickets; the model has seen `cached` tokens of each row
    before. The tensors are on the ids' device, floats in the model's dtype.

    Raises:
        ImageError: If the native processor refuses the batch, or images come behind a key-value cache.
    """
    if cached:
        raise ImageError(
            f"Got images behind {cached} cached tokens, for a {type(backbone).__name__} that takes the "
            "native processor's tensors. Pass whole rows, without a cache."
        )
    if mask is None or mask.shape != input_ids.shape:
        mask = torch.ones_like(input_ids)
    tensors = call_on_ids(
        backbone.processing_class, [row.tickets for row in rows], input_ids.tolist(), mask.tolist()
    )
    for name, value in tensors.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value.to(input_ids.device, backbone.dtype if value.is_floating_point() else None)
    return tensors
