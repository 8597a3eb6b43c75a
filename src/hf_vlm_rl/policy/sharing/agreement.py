"""The check that a decoder gives stock's hidden states on packed rows."""

import copy
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from ...compat import CACHE
from ..probe import OF_BATCHES, Check, ordinary_ids
from ..report import Refused
from .layout import LAYOUT, find_layout

# Five test rows: padding on the left of each, tokens of the common prefix, tokens of each row alone.
PADDING, PREFIX, SUFFIXES = (3, 3, 3, 0, 0), 24, (9, 3, 5, 5, 4)

# Two of the rows have a second prefix in common, behind the first: its tokens, and these rows.
TURN, OF_TURN = 6, (1, 2)

# Tokens of the prompt whose recurrent states `_require_states` changes, and of the text behind it.
LENGTH = 6


def _stock(decoder: Any) -> torch.Tensor:
    """(N, H): hidden states of the real tokens, each row computed by itself."""
    arguments, mask = _batch(decoder)
    return decoder(**arguments).last_hidden_state[mask]


def _ours(decoder: Any) -> torch.Tensor:
    """(N, H): the same hidden states, computed on a packed row."""
    _require_states(decoder)
    arguments, mask = _batch(decoder)
    layout = find_layout(_rows(), _rows() >= 0, toll=0)
    if layout is None:
        raise ValueError("Got test rows with padding in their middle. Expected it at their ends.")
    return decoder(**arguments, **{LAYOUT: layout.to(decoder.device)}).last_hidden_state[mask]


ROWS = Check("where rows share what they begin with", _stock, _ours, OF_BATCHES)


def _batch(decoder: Any) -> tuple[dict[str, Any], torch.Tensor]:
    """A decoder's arguments for the test rows, and (B, T) bool, the real tokens."""
    numbers = _rows().to(decoder.device)
    mask = numbers >= 0
    words = ordinary_ids(decoder, int(numbers.max()) + 1)
    embeddings = decoder.get_input_embeddings()(words[numbers.clamp(min=0)])
    return {"inputs_embeds": embeddings, "attention_mask": mask.long(), "use_cache": False}, mask


def _rows() -> torch.Tensor:
    """(5, T) numbers of the words in rows with common prefixes, padded on both sides with -1."""
    numbers = torch.full((len(SUFFIXES), max(PADDING) + PREFIX + TURN + max(SUFFIXES)), -1)
    for row, (start, suffix) in enumerate(zip(PADDING, SUFFIXES, strict=True)):
        common = PREFIX + (TURN if row in OF_TURN else 0)
        suffix_words = PREFIX + TURN + 1 + row * max(SUFFIXES) + torch.arange(suffix)
        numbers[row, start : start + common + suffix] = torch.cat([torch.arange(1, common + 1), suffix_words])
    return numbers


def _require_states(decoder: Any) -> None:
    """Refuse a decoder whose recurrent layers do not continue from their states when several tokens follow.

    Some (Jamba's) read their states only for a single token and begin anew otherwise. Half precision may
    round the difference away, so hidden states may hide it. So this check changes the states: if the hidden
    states behind them stay equal bit for bit, no layer has read them.

    Raises:
        Refused: If no layer reads the states of one kind.
    """
    cache = DynamicCache(config=decoder.config)
    if not _layers_with_states(cache):
        return
    prompt, rest = ordinary_ids(decoder, 2 * LENGTH).view(2, 1, LENGTH)
    _continue(decoder, prompt, cache)
    plain = _continue(decoder, rest, copy.deepcopy(cache))
    for kind in ("conv_states", "recurrent_states"):
        changed = copy.deepcopy(cache)
        if _change(changed, kind) and torch.equal(_continue(decoder, rest, changed), plain):
            raise Refused(f"several tokens of {type(decoder).__name__} run as if there were no {kind}")


def _layers_with_states(cache: Cache) -> list[Any]:
    return [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]


def _change(cache: Cache, kind: str) -> bool:
    """Change all states of one kind; False if there are none."""
    changed = False
    for layer in _layers_with_states(cache):
        states = getattr(layer, kind)
        for number, state in states.items():
            if state is not None:
                states[number], changed = 2 * state + 1, True
    return changed


def _continue(decoder: Any, ids: torch.Tensor, cache: Cache) -> torch.Tensor:
    """Hidden states of (1, T) ids behind the tokens in a cache, which then holds these ids, too."""
    embeddings = decoder.get_input_embeddings()(ids)
    return decoder(inputs_embeds=embeddings, use_cache=True, **{CACHE: cache}).last_hidden_state
