"""Recurrent and convolutional modules on a packed sequence: prefixes first, suffixes from their states.

Such a module reads a sequence from left to right, so packed rows would run into each other. It runs twice
instead, inside its own layer: on the prefixes, and on the suffixes, which begin with their prefix's states.
Everything else of the layer stays packed, and no state crosses a layer, so gradient checkpointing holds.
"""

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import LinearAttentionLayer

from .packing import Packing, Runs
from .states import keep_states


def run_twice(mixer: Any, forward: Any, cache_name: str, packing: Packing, kwargs: dict[str, Any]) -> Any:
    """A recurrent module's output on a packed sequence.

    Args:
        mixer: The module.
        forward: Its stock forward.
        cache_name: The argument that takes the cache.
        packing: How the rows are packed.
        kwargs: Its arguments; `hidden_states` (1, S, H).

    Returns:
        (1, S, H).
    """
    runs, hidden = packing.runs, kwargs["hidden_states"][0]
    states: Any = keep_states(LinearAttentionLayer())
    layers: list[Any] = [*[None] * mixer.layer_idx, states]
    cache = Cache(layers=layers)

    def run(part: Runs) -> torch.Tensor:
        mask = part.mask if part.place.numel() < part.mask.numel() else None
        own = {"hidden_states": hidden[part.tokens], "attention_mask": mask, cache_name: cache}
        return forward(mixer, **kwargs | own).flatten(0, 1)

    outputs = [run(runs.first)]
    if runs.second is not None:
        states.reorder_cache(runs.prefix)
        outputs.append(run(runs.second))
    return torch.cat(outputs).index_select(0, runs.place).unsqueeze(0)
