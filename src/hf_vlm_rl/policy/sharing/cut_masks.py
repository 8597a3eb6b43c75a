"""Attention masks of a batch that is cut into prompts and what follows them."""

from typing import Any

import torch
from transformers import Cache

from .visibility import UnknownInput, sees

Mask = torch.Tensor | None

# Kinds of layers whose masks say which tokens are padding, in transformers' names; others say who sees whom.
RECURRENT = frozenset({"conv", "linear_attention"})


def prompt_masks(mask: Any, column: int, first: torch.Tensor, prompt: torch.Tensor) -> Any:
    """What the distinct prompts see.

    Args:
        mask: Of the batch, as its decoder gets it: (B, T), (B or 1, 1, T, T), None, or a dict of these.
        column: Where the batch is cut.
        first: (U,) a row of each prompt.
        prompt: (B,) the prompt of each row.

    Raises:
        UnknownInput: If the mask has another form, or a prompt sees what follows it, or rows' prompts differ.
    """
    if isinstance(mask, dict):
        return {kind: prompt_masks(one, column, first, prompt) for kind, one in mask.items()}
    if mask is None:
        return None
    _check_form(mask)
    if mask.ndim == 2:
        return mask[first, :column]
    before = mask[..., :column, :].expand(len(prompt), -1, -1, -1)
    prompts = before[first]
    if bool(sees(prompts[..., column:]).any()) or not torch.equal(prompts[prompt], before):
        raise UnknownInput("tokens of the common prefix see what follows it", lasting=False)
    return prompts[..., :column]


def later_masks(mask: Any, column: int, shape: tuple[int, int], cache: Cache) -> Any:
    """What the tokens behind the prompts see of the cache and of each other; arguments as above.

    Args:
        mask: As above.
        column: Where the batch is cut.
        shape: (B, T).
        cache: Filled with the prompts.
    """
    if isinstance(mask, dict):
        return {kind: _later(one, column, shape, cache, kind) for kind, one in mask.items()}
    if mask is None or mask.ndim == 2:
        return mask  # the decoder makes its own of it
    return _later(mask, column, shape, cache, "sliding" if any(cache.is_sliding) else "full")


def _later(mask: Mask, column: int, shape: tuple[int, int], cache: Cache, kind: str) -> Mask:
    columns = shape[1]
    if kind in RECURRENT:
        return None if mask is None else mask[:, column:]
    if mask is None:
        kept = (getattr(layer, "keys", None) for layer in cache.layers)
        device = next(keys.device for keys in kept if keys is not None)
        mask = torch.ones(1, 1, columns, columns, dtype=torch.bool, device=device).tril()
    # Layers with a window keep no more than it holds.
    alike = (
        number
        for number, layer in enumerate(cache.layers)
        if hasattr(layer, "get_mask_sizes") and cache.is_sliding[number] == ("sliding" in kind)
    )
    length, _ = cache.get_mask_sizes(columns - column, next(alike, 0))
    return mask[..., column:, -length:]


def _check_form(mask: Any) -> None:
    if not isinstance(mask, torch.Tensor) or mask.ndim not in (2, 4):
        raise UnknownInput(f"the backbone makes an attention mask of type {type(mask).__name__}")
