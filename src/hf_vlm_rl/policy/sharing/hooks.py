"""Lets a decoder's modules run on packed rows, or on a cache that shares its prompts.

Our attentions are registered with transformers by name. A call that comes with a packing, or with a cache
that shares its prompts, runs the stock module's forward on a view of the module whose config names ours.
Stock layers hand the packing on as a keyword, so calls in several threads change nothing in common.
"""

import inspect
from typing import Any, TypeVar

from torch import nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_layers import GradientCheckpointingLayer

from ..._retype import Retyped, overriding, retype
from ...compat import CACHE
from ..caches.prefix_cache import SharedPrompts, prefix_cache_attention
from .attention import shared_prefix_attention
from .recurrence import run_along
from .visibility import is_attention, packed_mask

# The keyword by which a decoder's modules get the `Packing` of packed rows.
PACKING = "vlm_packing"

PACKED = "hf_vlm_rl_shared_prefix"
CACHED = "hf_vlm_rl_prefix_cache"

M = TypeVar("M", bound=nn.Module)

# On import, as a policy that another process unpickles is attached already.
AttentionInterface.register(PACKED, shared_prefix_attention)
AttentionMaskInterface.register(PACKED, packed_mask)
AttentionInterface.register(CACHED, prefix_cache_attention)


def attach(decoder: nn.Module) -> int:
    """Re-type a decoder's attention and recurrent modules in place; returns the number of the latter.

    The decoder's forward alone would not do: gradient checkpointing runs the modules again in the backward
    pass, long after that forward is over.
    """
    recurrent = 0
    for module in decoder.modules():
        if is_attention(module):
            retype(module, SharingAttention)
        elif _cache_name(module):
            retype(module, SharingRecurrence)
            recurrent += 1
    return recurrent


class SharingAttention(Retyped):
    """The stock attention module, which uses our attention for calls that bring a layout or our cache."""

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        @overriding(stock.forward)
        def forward(self: Any, kwargs: dict[str, Any]) -> Any:
            if (packing := kwargs.pop(PACKING, None)) is not None:
                kwargs["attention_mask"] = packing.visibility(kwargs.get("attention_mask"))
                return stock.forward(view(self, PACKED), **kwargs)
            cache = kwargs.get(CACHE)
            if isinstance(cache, SharedPrompts):
                layer = cache.layers[self.layer_idx]
                return stock.forward(view(self, CACHED), **kwargs, prefix_layer=layer)
            return stock.forward(self, **kwargs)

        return {"forward": forward}


class SharingRecurrence(Retyped):
    """The stock recurrent or convolutional module, which runs along the tree of packed rows."""

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        cache_name = str(_cache_parameter(stock))  # `attach` re-types none that lacks it

        @overriding(stock.forward)
        def forward(self: Any, kwargs: dict[str, Any]) -> Any:
            if (packing := kwargs.pop(PACKING, None)) is not None:
                return run_along(self, stock.forward, cache_name, packing, kwargs)
            return stock.forward(self, **kwargs)

        return {"forward": forward}


class _ConfigView:
    """A config with another attention implementation."""

    def __init__(self, config: Any, attention: str):
        self._config = config
        self._attn_implementation = attention  # the name under which transformers' modules read it

    def get_text_config(self, *args: Any, **kwargs: Any) -> Any:
        text = self._config.get_text_config(*args, **kwargs)
        return self if text is self._config else text

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def view(module: M, attention: str) -> M:
    """The same module, weights and submodules included, with another attention implementation."""
    copy = object.__new__(type(module))
    copy.__dict__.update(module.__dict__, config=_ConfigView(module.config, attention))
    return copy


def _cache_name(module: nn.Module) -> str | None:
    """The argument for the cache of a recurrent or convolutional module; None for other modules."""
    if isinstance(module, GradientCheckpointingLayer) or not hasattr(module, "layer_idx"):
        return None
    return _cache_parameter(type(module))


def _cache_parameter(kind: Any) -> str | None:
    parameters = inspect.signature(kind.forward).parameters
    names = [name for name in (CACHE, "cache_params") if name in parameters]
    return names[0] if names and "hidden_states" in parameters else None
