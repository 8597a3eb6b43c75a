"""Caches whose rows can be chosen: repeated for rows with one prompt, or left out when they are finished."""

from typing import Any

from transformers import DynamicCache
from transformers.cache_utils import (
    DummyLayer,
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionLayer,
)

from .prefix_cache import PrefixLayer, SharedPrompts

# Caches and layers whose `reorder_cache` also takes fewer or more rows than there are.
CACHES = (DynamicCache, SharedPrompts)
LAYERS = (
    DummyLayer,
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionLayer,
    PrefixLayer,
)


def unknown_cache(cache: Any) -> str | None:
    """Why rows of `cache` cannot be chosen; None if they can."""
    if cache is None:
        return "the model has no cache that is known here"
    if type(cache) not in CACHES:
        return f"the cache is a {type(cache).__name__}"
    if cache.offloading:
        return "the cache is offloaded"
    if cache.is_compileable:
        return "the model may be compiled for the cache's shape"
    unknown = [layer for layer in cache.layers if type(layer) not in LAYERS]
    return f"the cache has a {type(unknown[0]).__name__}" if unknown else None
