"""The head's product of the last tokens of all rows, at once.

Of hidden states (B, T, H), a stock model slices the last K tokens off. Such a slice is no matrix, so torch
multiplies it with a head that is not trained row by row, and reads the whole head for each: with 128 rows
of 9 tokens and 49,154 words, six times as long as one product on a CPU. Tokens that are named by their
places are copied, and the copy is a matrix.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch


def takes_places(forward: Callable[..., Any]) -> bool:
    """Whether a model's forward says that `logits_to_keep` may be a tensor, as those of transformers do."""
    parameter = inspect.signature(forward).parameters.get("logits_to_keep")
    return parameter is not None and "Tensor" in str(parameter.annotation)


def kept_by_place(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What to change in a forward's arguments: `logits_to_keep` as places, where it is a number; or nothing.

    Args:
        kwargs: The arguments of a policy's forward.
    """
    kept, ids = kwargs.get("logits_to_keep"), kwargs.get("input_ids")
    # Of a single row or token, the slice is a matrix.
    if type(kept) is not int or not isinstance(ids, torch.Tensor) or ids.ndim != 2 or len(ids) < 2:
        return {}
    columns = ids.shape[1]
    if not 1 < kept < columns:
        return {}
    return {"logits_to_keep": torch.arange(columns - kept, columns, device=ids.device)}
