"""The arguments of a decoding step, and the cache, for some rows of a batch.

Shapes: B rows, b of them chosen, T tokens.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ..sharing.prefix_cache import PrefixLayer, take_columns

# The dimension of the rows in what a decoding step is given for each token.
ROWS = {
    "attention_mask": 0,
    "input_ids": 0,
    "mm_token_type_ids": 0,
    "position_ids": -2,  # (B, T), or (3 or 4, B, T) for multimodal positions
    "token_type_ids": 0,
}

# What a decoding step is given once for all rows.
ONCE = frozenset({"logits_to_keep", "past_key_values", "return_dict", "use_cache"})


def unknown_argument(kwargs: Mapping[str, Any], rows: int) -> str | None:
    """Why rows of a decoding step's arguments cannot be chosen; None if they can.

    Args:
        kwargs: The arguments of the policy's forward.
        rows: B.
    """
    for name, value in kwargs.items():
        if name in ONCE or value is None or value is False:
            continue
        parts = value.values() if isinstance(value, Mapping) else (value,)
        if name not in ROWS or not all(part is None or _has_rows(name, part, rows) for part in parts):
            return f"the model's decoding step takes {name}"
    return None


def choose_arguments(kwargs: Mapping[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """The arguments for the chosen rows.

    Args:
        kwargs: Of all B rows; `unknown_argument` has nothing against them.
        rows: (b,) numbers of the chosen rows.
    """
    return {name: _choose(name, value, rows) if name in ROWS else value for name, value in kwargs.items()}


def choose_cache(cache: Any, rows: torch.Tensor) -> None:
    """Leave the other rows out of a cache, in place.

    Args:
        cache: `known_caches.unknown_cache` has nothing against it.
        rows: (b,) places of the chosen rows in the cache.
    """
    cache.reorder_cache(rows)


def choose_columns(cache: Any, columns: torch.Tensor, prompt: int) -> None:
    """Keep some of the tokens behind the prompt, other ones in each row, in place.

    Args:
        cache: All of its layers are `DynamicLayer` or `PrefixLayer`.
        columns: (B, c) their places behind the prompt.
        prompt: Tokens of the padded prompt.
    """
    for layer in cache.layers:
        if isinstance(layer, PrefixLayer):
            layer.choose_columns(columns)
        elif layer.is_initialized:  # layers that read another one's keys have none
            keys, values = (
                torch.cat([states[:, :, :prompt], take_columns(states[:, :, prompt:], columns)], dim=2)
                for states in (layer.keys, layer.values)
            )
            layer.keys, layer.values = keys, values


def _has_rows(name: str, value: Any, rows: int) -> bool:
    if not isinstance(value, torch.Tensor) or value.ndim < 2:
        return False
    return value.shape[ROWS[name]] in (1, rows)


def _choose(name: str, value: Any, rows: torch.Tensor) -> Any:
    if isinstance(value, Mapping):
        return {kind: _choose(name, part, rows) for kind, part in value.items()}
    if not isinstance(value, torch.Tensor) or value.shape[ROWS[name]] == 1:
        return value  # the same for all rows
    return value.index_select(ROWS[name], rows.to(value.device))
