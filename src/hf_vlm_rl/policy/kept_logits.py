"""Multiplies the last tokens of all rows with the head in one matrix product.

A stock model slices the last K tokens off hidden states (B, T, H). Such a slice is not contiguous, so torch
multiplies it with a frozen head row by row, and reads the whole head for each row. With 128 rows of 9 tokens
and 49,154 words, that takes 2.6 times as long as one product on a CPU (`benchmarks/kept_logits.py`). If
`logits_to_keep` has the indices of the tokens instead, stock copies these tokens, and the copy is contiguous.
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
    """Changes of a forward's arguments: `logits_to_keep` as indices, if it is a number of tokens; or none."""
    number, ids = kwargs.get("logits_to_keep"), kwargs.get("input_ids")
    # With a single row or a single token, the slice is a matrix already.
    if type(number) is not int or not isinstance(ids, torch.Tensor) or ids.ndim != 2 or len(ids) < 2:
        return {}
    columns = ids.shape[1]
    if not 1 < number < columns:
        return {}
    return {"logits_to_keep": torch.arange(columns - number, columns, device=ids.device)}


def logits_of(output: Any) -> torch.Tensor:
    """The logits of a forward's output, which may be a tuple."""
    parts = output if isinstance(output, tuple) else (output.logits,)
    return next(part for part in parts if isinstance(part, torch.Tensor) and part.ndim == 3)
