"""Tickets as exactly the tensors that the native processor makes for a batch.

For models that take no ready image features, or whose features of an image depend on the other images of
the batch. The stock forward runs as it stands: no image is encoded once for several rows or forwards, and
no prompt is shared.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import ImageError
from ..processing.native_call import call_on_ids
from .row_images import RowImages

NOT_SHARED = (
    "native_inputs: the model gets the native processor's tensors for each batch, so no image and no prompt "
    "is computed once"
)


def native_tensors(
    backbone: Any,
    input_ids: torch.Tensor,
    rows: Sequence[RowImages],
    mask: torch.Tensor | None,
    cached: int,
) -> dict[str, Any]:
    """What the stock forward takes beside the ids of rows with images.

    Args:
        backbone: A policy's backbone.
        input_ids: (B, T), clean.
        rows: The images of each row.
        mask: (B, T) attention mask, if the caller has one.
        cached: Tokens of each row that the model has seen before these.

    Returns:
        The native processor's tensors on the model's device, floats in its dtype: pixels, what comes with
        them, and what it says of each token.

    Raises:
        ImageError: If the native processor refuses the batch, or images come behind a key-value cache.
    """
    if cached:
        raise ImageError(
            f"Got images behind {cached} cached tokens, for a {type(backbone).__name__} that takes the "
            "native processor's tensors. Pass whole rows, without past_key_values."
        )
    if mask is None or mask.shape != input_ids.shape:
        mask = torch.ones_like(input_ids)
    made = call_on_ids(
        backbone.processing_class, [row.tickets for row in rows], input_ids.tolist(), mask.tolist()
    )
    return {name: _placed(value, backbone) for name, value in made.items()}


def _placed(value: Any, backbone: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.to(backbone.device)
    return value.to(backbone.dtype) if value.is_floating_point() else value
