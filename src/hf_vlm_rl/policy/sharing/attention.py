"""Attention over a packed sequence: prefixes causal, suffixes against their prefix and themselves."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from .layout import Chunk, Group, Layout


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
    parts = []
    for group in shared_prefix.groups:
        if group.prefix:
            parts.append(_attend(query, key, value, slice(group.start, group.start + group.prefix), scaling))
        parts += [_chunk_attention(query, key, value, group, chunk, scaling) for chunk in group.chunks]
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, tokens: slice, scaling: float | None
) -> torch.Tensor:
    """Causal attention of some tokens among themselves: (1, heads, tokens, d)."""
    own = (tensor[:, :, tokens] for tensor in (query, key, value))
    return scaled_dot_product_attention(*own, is_causal=True, scale=scaling, enable_gqa=True)


def _chunk_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    group: Group,
    chunk: Chunk,
    scaling: float | None,
) -> torch.Tensor:
    """Attention of some rows' suffixes: (1, heads, tokens, d)."""
    tokens = slice(chunk.begin, chunk.end)
    if chunk.visible is None:
        return _attend(query, key, value, tokens, scaling)
    seen = (_behind_prefix(tensor, group, tokens) for tensor in (key, value))
    grouped = query.device.type == "cpu"
    if not grouped:
        # CUDA's kernels take a mask or fewer key heads, not both; the fallback keeps all scores.
        repeats = query.shape[1] // key.shape[1]
        seen = (tensor.repeat_interleave(repeats, dim=1) for tensor in seen)
    return scaled_dot_product_attention(
        query[:, :, tokens], *seen, attn_mask=chunk.visible, scale=scaling, enable_gqa=grouped
    )


def _behind_prefix(tensor: torch.Tensor, group: Group, tokens: slice) -> torch.Tensor:
    end = group.start + group.prefix
    if tokens.start == end:
        return tensor[:, :, group.start : tokens.stop]
    return torch.cat([tensor[:, :, group.start : end], tensor[:, :, tokens]], dim=2)
