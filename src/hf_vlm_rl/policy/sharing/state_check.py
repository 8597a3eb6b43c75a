"""Whether a decoder's recurrent layers go on from their states where several tokens follow.

Some read them for a single token only (Jamba's) and begin anew otherwise. What that changes can be less than
half precision rounds, so values do not show it.
"""

import copy
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from ..eval_mode import evaluating
from .tolerance import ordinary_ids

LENGTH = 6  # of a prompt, and of what follows it


def unread_states(decoder: Any) -> str | None:
    """Why prompts must not be shared: what follows them does not depend on their states. None if it does.

    Args:
        decoder: The text decoder of a policy; its mode and gradients are left as they are.
    """
    cache = DynamicCache(config=decoder.config)
    if not _with_states(cache):
        return None
    prompt, rest = ordinary_ids(decoder, 2 * LENGTH).view(2, 1, LENGTH)
    with torch.no_grad(), evaluating(decoder):
        try:
            _run(decoder, prompt, cache)
            plain = _run(decoder, rest, copy.deepcopy(cache))
            for kind in ("conv_states", "recurrent_states"):
                other = copy.deepcopy(cache)
                if _change(other, kind) and torch.equal(_run(decoder, rest, other), plain):
                    return f"several tokens of {type(decoder).__name__} run as if there were no {kind}"
        except Exception as error:  # a model that nobody has seen may do anything with what it is given
            return f"{type(error).__name__}: {error}"
    return None


def _with_states(cache: Cache) -> list[Any]:
    return [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]


def _change(cache: Cache, kind: str) -> bool:
    """Change all states of one kind; False if there are none."""
    changed = False
    for layer in _with_states(cache):
        states = getattr(layer, kind)
        for number, state in states.items():
            if state is not None:
                states[number], changed = 2 * state + 1, True
    return changed


def _run(decoder: Any, ids: torch.Tensor, cache: Cache) -> torch.Tensor:
    embeddings = decoder.get_input_embeddings()(ids)
    return decoder(inputs_embeds=embeddings, past_key_values=cache, use_cache=True).last_hidden_state
