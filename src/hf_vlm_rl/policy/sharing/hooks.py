"""Lets a decoder's attention modules use our attention for the calls that are meant for it.

Both attentions are registered with transformers by name. A module switches to one of them for calls
that come with a layout, or with a cache that shares its prompts, and back to its own afterwards.
"""

from typing import Any

from torch import nn
from transformers import AttentionInterface

from .attention import shared_prefix_attention
from .prefix_cache import PrefixLayer, prefix_cache_attention

# What a decoder is given besides the arguments that transformers knows, for packed rows.
LAYOUT = "shared_prefix"

PACKED = "hf_vlm_rl_shared_prefix"
CACHED = "hf_vlm_rl_prefix_cache"


def attach(decoder: nn.Module) -> int:
    """Hook a decoder's attention modules.

    On the modules and not in the decoder's forward, because gradient checkpointing runs them again
    in the backward pass, long after that forward is over.

    Returns:
        The number of attention modules.
    """
    AttentionInterface.register(PACKED, shared_prefix_attention)
    AttentionInterface.register(CACHED, prefix_cache_attention)
    modules = [module for module in decoder.modules() if _is_attention(module)]
    for module in modules:
        module.register_forward_pre_hook(_switch, with_kwargs=True)
        module.register_forward_hook(_switch_back, with_kwargs=True, always_call=True)
    return len(modules)


def _is_attention(module: nn.Module) -> bool:
    # What transformers' attention functions read of a module; neither layers nor MLPs have both.
    return hasattr(module, "layer_idx") and hasattr(module, "is_causal")


def _switch(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    if kwargs.get(LAYOUT) is not None:
        name = PACKED
    elif (layer := _prefix_layer(module, kwargs)) is not None:
        name, kwargs = CACHED, kwargs | {"prefix_layer": layer}
    else:
        return None
    module._own_attention = module.config._attn_implementation
    module.config._attn_implementation = name
    return args, kwargs


def _prefix_layer(module: nn.Module, kwargs: dict) -> PrefixLayer | None:
    layers = getattr(kwargs.get("past_key_values"), "layers", ())
    layer = layers[module.layer_idx] if module.layer_idx < len(layers) else None
    return layer if isinstance(layer, PrefixLayer) else None


def _switch_back(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
    own = module.__dict__.pop("_own_attention", None)
    if own is not None:
        module.config._attn_implementation = own
