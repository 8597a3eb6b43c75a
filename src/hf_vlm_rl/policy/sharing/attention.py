"""Attention over a packed sequence: of each token to what its rows have before it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from .attention_arguments import unknown_argument
from .flex import flex
from .visibility import AHEAD, UnknownInput, Visibility, looks_ahead


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
        **kwargs: What else the stock module passes; see `attention_arguments`.

    Returns:
        (1, S, heads, d) and no weights.

    Raises:
        UnknownInput: If the module asks for what this attention does not compute.
    """
    if not isinstance(attention_mask, Visibility):
        raise UnknownInput("an attention module gets a mask that packing does not know")
    if looks_ahead(module) and not attention_mask.explicit:
        raise UnknownInput(AHEAD, lasting=False)
    if dropout:
        raise UnknownInput("the attention module drops weights")
    unknown = unknown_argument(kwargs)
    if unknown is not None:
        raise UnknownInput(f"the attention module takes {unknown}")
    tensors = _in_autocast(query, key, value)
    plain = softcap is None and s_aux is None
    if _takes_flex(*tensors, attention_mask, scaling, plain):
        with torch.autocast(query.device.type, enabled=False):
            return flex(*tensors, attention_mask.blocks, scaling).transpose(1, 2), None
    calls = attention_mask.layout.calls
    lengths = [call.length for call in calls]
    queries, keys, values = (tensor.split(lengths, dim=2) for tensor in (query, key, value))
    parts = []
    for number, (call, visible) in enumerate(zip(calls, attention_mask.masks, strict=True)):
        seen = (*call.before, number)
        # Causal kernels want as many queries as keys: what lies before gives some that nobody reads.
        asking = seen if visible is None else (number,)
        joined = _joined(queries, asking), _joined(keys, seen), _joined(values, seen)
        if plain:
            part = _attend(*joined, visible, scaling)
        else:
            part = _attend_by_scores(*joined, visible, scaling, softcap, s_aux)
        parts.append(part if len(asking) == 1 else part[:, :, -call.length :])
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _in_autocast(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As autocast brings them to stock attention; rotary positions make float32 of some."""
    device = query.device.type
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return query, key, value
    dtype = torch.get_autocast_dtype(device)
    return query.to(dtype), key.to(dtype), value.to(dtype)


@torch.compiler.disable
def _takes_flex(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visibility: Visibility,
    scaling: float | None,
    plain: bool,
) -> bool:
    choice = visibility.layout.attention
    return choice is not None and bool(choice.takes_flex(query, key, value, visibility, scaling, plain))


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    """Attention of tokens to what they see of the keys, None for all up to them: (1, heads, tokens, d)."""
    if visible is None:
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    grouped = query.device.type == "cpu"
    if not grouped:
        # CUDA's kernels take a mask or fewer key heads, not both; the fallback keeps all scores.
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
    """As `_attend`, step by step as stock's "eager" attention: kernels neither cap scores nor know sinks."""
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
    """Some of the pieces (1, heads, tokens, d), one behind the other."""
    return pieces[numbers[0]] if len(numbers) == 1 else torch.cat([pieces[n] for n in numbers], dim=2)
