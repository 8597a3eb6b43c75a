"""Lets a decoder's attention modules use our attention for the calls that are meant for it.

Both attentions are registered with transformers by name. A call that comes with a layout, or with a cache
that shares its prompts, runs the stock module's forward on a view of the module whose config names ours.
Nothing that two calls have in common changes, so any number of threads may use one policy.
"""

from typing import Any

from torch import nn
from transformers import AttentionInterface

from ..._retype import Retyped, overriding, retype
from .attention import shared_prefix_attention
from .prefix_cache import SharedPrompts, prefix_cache_attention

# What a decoder is given besides the arguments that transformers knows, for packed rows.
LAYOUT = "shared_prefix"

PACKED = "hf_vlm_rl_shared_prefix"
CACHED = "hf_vlm_rl_prefix_cache"


def attach(decoder: nn.Module) -> int:
    """Re-type a decoder's attention modules in place.

    The modules and not the decoder's forward, because gradient checkpointing runs them again in the
    backward pass, long after that forward is over.

    Returns:
        The number of attention modules.
    """
    AttentionInterface.register(PACKED, shared_prefix_attention)
    AttentionInterface.register(CACHED, prefix_cache_attention)
    modules = [module for module in decoder.modules() if _is_attention(module)]
    for module in modules:
        retype(module, SharingAttention)
    return len(modules)


class SharingAttention(Retyped):
    """The stock attention module, which uses our attention for calls that bring a layout or our cache."""

    @classmethod
    def _members(cls, stock: type) -> dict[str, Any]:
        @overriding(stock.forward)
        def forward(self, kwargs):
            if kwargs.get(LAYOUT) is not None:
                return stock.forward(_view(self, PACKED), **kwargs)
            cache = kwargs.get("past_key_values")
            if isinstance(cache, SharedPrompts):
                layer = cache.layers[self.layer_idx]
                return stock.forward(_view(self, CACHED), **kwargs, prefix_layer=layer)
            return stock.forward(self, **kwargs)

        return {"forward": forward}


class _ConfigView:
    """A config with another attention implementation."""

    def __init__(self, config: Any, attention: str):
        self._config = config
        self._attn_implementation = attention  # the name under which transformers' modules read it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def _view(module: nn.Module, attention: str) -> nn.Module:
    """The same module, weights and submodules included, with another attention implementation."""
    view = object.__new__(type(module))
    view.__dict__.update(module.__dict__, config=_ConfigView(module.config, attention))
    return view


def _is_attention(module: nn.Module) -> bool:
    # What transformers' attention functions read of a module; neither layers nor MLPs have both.
    return hasattr(module, "layer_idx") and hasattr(module, "is_causal")
