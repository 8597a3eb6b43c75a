"""Attention over a packed sequence: each token attends to the tokens before it in its rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from ..arguments import ATTENTION, require_known
from ..report import Refused
from .visibility import AHEAD, Visibility, looks_ahead


def shared_prefix_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Visibility,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Exact attention of every row, on the packed tokens.

    Args:
        module: The attention module.
        query: (1, heads, S, d).
        key: (1, key heads, S, d).
        value: (1, key heads, S, d).
        attention_mask: Who sees whom.
        scaling: Of the scores; 1 / sqrt(d) if None.
        dropout: Of the weights; must be 0.
        softcap: Scores stay below it in size, by a tanh (Gemma 2).
        s_aux: (heads,) the score of a sink, which takes weight and has no value (GPT-OSS).
        **kwargs: What else the stock module passes; `arguments.ATTENTION` has the names that change nothing.

    Returns:
        (1, S, heads, d) and no weights.

    Raises:
        Refused: If the module asks for what this attention does not compute.
    """
    if looks_ahead(module) and not attention_mask.explicit:
        raise Refused(AHEAD)
    if dropout:
        raise Refused("the attention module drops weights", lasting=True)
    require_known(kwargs, ATTENTION, "the attention module takes", lasting=True)
    plain = softcap is None and s_aux is None
    calls = attention_mask.layout.calls
    lengths = [call.length for call in calls]
    queries, keys, values = (tensor.split(lengths, dim=2) for tensor in (query, key, value))
    parts = []
    for number, (call, visible) in enumerate(zip(calls, attention_mask.masks, strict=True)):
        key_calls = (*call.before, number)
        # `is_causal` aligns the first query with the first key. So the tokens before the call are queries as
        # well, and their outputs are dropped below.
        query_calls = key_calls if visible is None else (number,)
        tensors = _joined(queries, query_calls), _joined(keys, key_calls), _joined(values, key_calls)
        if plain:
            part = _attend(*tensors, visible, scaling)
        else:
            part = _attend_by_scores(*tensors, visible, scaling, softcap, s_aux)
        parts.append(part if len(query_calls) == 1 else part[:, :, -call.length :])
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    """Attention of queries to the keys that are `visible` (None: causal): (1, heads, tokens, d)."""
    if visible is None:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    grouped = query.device.type == "cpu"
    if not grouped:
        # CUDA's kernels take a mask or fewer key heads, not both; torch's fallback would store all scores.
        repeats = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(repeats, dim=1) for tensor in (key, value))
    if visible.dtype != torch.bool:
        visible = visible.to(query.dtype)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=visible, scale=scaling, enable_gqa=grouped
    )


def _attend_by_scores(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """As `_attend`, with explicit scores as in stock's "eager": kernels have no soft caps and no sinks."""
    repeats = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(repeats, dim=1) for tensor in (key, value))
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if visible is None:
        visible = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril()
    if visible.dtype == torch.bool:
        scores = scores.masked_fill(~visible, -torch.inf)
    else:
        scores = scores + visible.to(scores.dtype)
    if sinks is not None:
        sink = sinks.to(scores.dtype).view(1, -1, 1, 1).expand(-1, -1, scores.shape[2], 1)
        scores = torch.cat([scores, sink], dim=-1)
    weights = scores.softmax(dim=-1, dtype=torch.float32)[..., : key.shape[2]]
    return weights.to(value.dtype) @ value


def _joined(pieces: Sequence[torch.Tensor], numbers: tuple[int, ...]) -> torch.Tensor:
    """The pieces (1, heads, tokens, d) of these numbers, concatenated."""
    return pieces[numbers[0]] if len(numbers) == 1 else torch.cat([pieces[n] for n in numbers], dim=2)
