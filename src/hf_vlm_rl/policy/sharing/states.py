"""Recurrent and convolutional states that keep their gradients."""

from types import MethodType
from typing import Any, TypeVar

import torch
from torch.nn.functional import pad
from transformers.cache_utils import LinearAttentionCacheLayerMixin

L = TypeVar("L", bound=LinearAttentionCacheLayerMixin)


def keep_states(layer: L) -> L:
    """Let an empty layer of a cache keep new states as new tensors; stock copies them into one tensor."""
    vars(layer)["update_conv_state"] = MethodType(_update_conv_state, layer)
    vars(layer)["update_recurrent_state"] = MethodType(_update_recurrent_state, layer)
    return layer


def _update_conv_state(
    layer: Any,
    conv_states: torch.Tensor,
    state_idx: int = 0,
    conv_kernel_size: int | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """The states that the convolution reads: those of the layer, and the new ones behind them."""
    width = conv_kernel_size or layer.conv_kernel_size[state_idx] or conv_states.shape[-1]
    if layer.has_previous_state[state_idx]:
        states = torch.cat([layer.conv_states[state_idx], conv_states], dim=-1)
    else:
        states = pad(conv_states, (max(width - conv_states.shape[-1], 0), 0))
    layer.device, layer.dtype = conv_states.device, conv_states.dtype
    layer.conv_kernel_size[state_idx] = width
    layer.conv_states[state_idx] = states[..., -width:]
    layer.is_conv_states_initialized[state_idx] = layer.has_previous_state[state_idx] = True
    return states


def _update_recurrent_state(
    layer: Any, recurrent_states: torch.Tensor, state_idx: int = 0, **kwargs: Any
) -> torch.Tensor:
    """The new state, which the layer then keeps."""
    layer.device, layer.dtype = recurrent_states.device, recurrent_states.dtype
    layer.recurrent_states[state_idx] = recurrent_states
    layer.is_recurrent_states_initialized[state_idx] = True
    return recurrent_states


class EarlierStates:
    """The states that a cache's layer, which keeps the latest, had at the end of several sequences."""

    def __init__(self, layer: LinearAttentionCacheLayerMixin):
        self._layer = layer
        self._kept: list[tuple[dict[int, Any], dict[int, Any]]] = []

    def keep(self) -> None:
        """Append the states of the latest sequences to those of earlier ones."""
        self._kept.append((dict(self._layer.conv_states), dict(self._layer.recurrent_states)))

    def restore(self, sequences: torch.Tensor) -> None:
        """Give the layer the states of the sequences of these (R,) numbers."""
        current = (self._layer.conv_states, self._layer.recurrent_states)
        for states, earlier in zip(current, zip(*self._kept, strict=True), strict=True):
            for number in states:
                if states[number] is not None:  # some modules have one of the two
                    states[number] = torch.cat([each[number] for each in earlier]).index_select(0, sequences)
