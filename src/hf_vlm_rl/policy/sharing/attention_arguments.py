"""What transformers' attention modules pass beside queries, keys, values and a mask."""

from collections.abc import Mapping
from typing import Any

# These ask for outputs, say of masks and positions what the mask and the queries and keys say already, or are
# arguments of `generate` that transformers hands on to all modules.
WITHOUT_EFFECT = frozenset(
    {
        "cache_position",
        "is_causal",
        "logits_to_keep",
        "mm_token_type_ids",
        "num_items_in_batch",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_embeddings",
        "position_ids",
        "sliding_window",
        "token_type_ids",
        "tokenizer",
        "use_cache",
    }
)


def unknown_argument(kwargs: Mapping[str, Any]) -> str | None:
    """The name of an argument that may change what attention gives; None if there is none."""
    unknown = (name for name, value in kwargs.items() if value is not None and name not in WITHOUT_EFFECT)
    return next(unknown, None)
