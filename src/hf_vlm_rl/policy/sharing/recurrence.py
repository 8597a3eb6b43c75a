"""Runs recurrent and convolutional modules along the tree of a packed sequence.

Such a module reads a sequence from left to right, so packed rows would run into each other. Instead it runs
several times inside its own layer: on the first prefixes, then from their states on the edges behind them.
Everything else in the layer runs once, and no state leaves its layer, so gradient checkpointing works.
"""

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import LinearAttentionLayer

from .packing import Packing
from .states import EarlierStates, keep_states


def run_along(mixer: Any, forward: Any, cache_name: str, packing: Packing, kwargs: dict[str, Any]) -> Any:
    """A recurrent module's output (1, S, H) on packed tokens; `cache_name` is its argument for a cache."""
    hidden = kwargs["hidden_states"][0]
    layer: Any = keep_states(LinearAttentionLayer())
    layers: list[Any] = [*[None] * mixer.layer_idx, layer]
    cache = Cache(layers=layers)
    earlier, outputs = EarlierStates(layer), []
    for run in packing.runs.runs:
        if run.states is not None:
            earlier.restore(run.states)
        arguments = {"hidden_states": hidden[run.tokens], "attention_mask": run.mask, cache_name: cache}
        outputs.append(forward(mixer, **kwargs | arguments).flatten(0, 1))
        if not run.last:
            earlier.keep()
    return torch.cat(outputs).index_select(0, packing.runs.place).unsqueeze(0)
