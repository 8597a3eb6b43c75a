"""Attention over a packed sequence: prefixes causal, suffixes against their prefix and themselves.

Registered with transformers under `NAME`; a decoder's attention modules use it for the calls that
come with a `shared_prefix` layout, and their own implementation for all others.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from .layout import Group, Layout

NAME = "hf_vlm_rl_shared_prefix"
ARGUMENT = "shared_prefix"


def shared_prefix_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    shared_prefix: Layout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Exact attention of every row, on the packed tokens.

    Args:
        module: The attention module; read for nothing.
        query: (1, heads, S, d).
        key: (1, key heads, S, d).
        value: (1, key heads, S, d).
        attention_mask: Ignored; the layout says who sees whom.
        scaling: Of the scores; 1 / sqrt(d) if None.
        shared_prefix: The layout.
        **kwargs: What else the stock module passes; without effect here.

    Returns:
        (1, S, heads, d) and no weights.
    """
    repeats = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(repeats, dim=1) for tensor in (key, value))
    parts = [
        part for group in shared_prefix.groups for part in _group_attention(query, key, value, group, scaling)
    ]
    return torch.cat(parts).unsqueeze(0), None


def _group_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Group, scaling: float | None
) -> list[torch.Tensor]:
    """(tokens, heads, d) of the prefix and of all suffixes, in packed order."""
    begin, end = group.start, group.start + group.prefix
    prefix = [tensor[:, :, begin:end] for tensor in (query, key, value)]
    parts = []
    if group.prefix:
        out = scaled_dot_product_attention(*prefix, is_causal=True, scale=scaling)
        parts.append(out[0].transpose(0, 1))
    rows, longest = len(group.suffixes), max(group.suffixes)
    lengths = torch.tensor(group.suffixes, device=query.device)
    offsets = lengths.cumsum(0) - lengths
    columns = torch.arange(longest, device=query.device)
    real = columns < lengths[:, None]  # (rows, longest)
    # Short suffixes repeat their last token; causality keeps it from every real one.
    index = end + offsets[:, None] + torch.minimum(columns, lengths[:, None] - 1)
    own = [_take(tensor, index) for tensor in (query, key, value)]
    seen = [
        torch.cat([shared.expand(rows, -1, -1, -1), mine], dim=2)
        for shared, mine in zip(prefix[1:], own[1:], strict=True)
    ]
    places = torch.arange(group.prefix + longest, device=query.device)
    visible = places <= group.prefix + columns[:, None]  # (longest, prefix + longest)
    out = scaled_dot_product_attention(own[0], *seen, attn_mask=visible, scale=scaling)
    parts.append(out.transpose(1, 2)[real])
    return parts


def _take(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """(1, heads, S, d) at `index` (rows, tokens), as (rows, heads, tokens, d)."""
    rows, tokens = index.shape
    taken = tensor[0].index_select(1, index.flatten())
    return taken.view(len(taken), rows, tokens, -1).transpose(0, 1)


def attach(decoder: nn.Module) -> None:
    """Let a decoder's attention modules switch to this attention for calls with a layout.

    By hooks on the attention modules, because gradient checkpointing runs those again in the
    backward pass, long after the decoder's own forward is over.
    """
    AttentionInterface.register(NAME, shared_prefix_attention)
    for module in decoder.modules():
        if hasattr(module, "q_proj") and hasattr(module, "config"):
            module.register_forward_pre_hook(_switch, with_kwargs=True)
            module.register_forward_hook(_switch_back, with_kwargs=True, always_call=True)


def _switch(module: nn.Module, args: tuple, kwargs: dict) -> None:
    if kwargs.get(ARGUMENT) is not None:
        module._own_attention = module.config._attn_implementation
        module.config._attn_implementation = NAME


def _switch_back(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
    if kwargs.get(ARGUMENT) is not None:
        module.config._attn_implementation = module._own_attention
