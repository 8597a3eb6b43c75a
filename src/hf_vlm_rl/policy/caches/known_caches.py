"""Caches whose rows can be chosen: repeated for rows with one prompt, or left out when they are finished."""

from typing import Any

from transformers import DynamicCache, cache_utils
from transformers.cache_utils import DynamicLayer

from ...compat import EMPTY_LAYERS
from ..report import Refused
from .prefix_cache import PrefixLayer, SharedPrompts

# Caches and layers whose `reorder_cache` also takes fewer or more rows than there are.
CACHES = (DynamicCache, SharedPrompts)
LAYERS = (
    PrefixLayer,
    DynamicLayer,
    *EMPTY_LAYERS,
    cache_utils.DynamicIndexedLayer,
    cache_utils.DynamicSlidingWindowLayer,
    cache_utils.LinearAttentionAndFullAttentionLayer,
    cache_utils.LinearAttentionAndSlidingWindowAttentionLayer,
    cache_utils.LinearAttentionLayer,
)


def require_known_cache(cache: Any) -> None:
    """Refuse a cache whose rows cannot be chosen.

    Raises:
        Refused: If it is missing, of an unknown kind, offloaded, or compiled for its shape.
    """
    if cache is None:
        raise Refused("the model has no cache that is known here")
    if type(cache) not in CACHES:
        raise Refused(f"the cache is a {type(cache).__name__}")
    if cache.offloading:
        raise Refused("the cache is offloaded")
    if cache.is_compileable:
        raise Refused("the model may be compiled for the cache's shape")
    for layer in cache.layers:
        if type(layer) not in LAYERS:
            raise Refused(f"the cache has a {type(layer).__name__}")


def keeps_all_keys(config: Any) -> bool:
    """Whether all layers of a decoder keep keys and values of all tokens, and nothing else."""
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return False
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return False
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
