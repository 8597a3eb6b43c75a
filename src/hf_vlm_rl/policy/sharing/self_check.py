"""Runs a decoder both ways on a few tokens before it shares for the first time.

The conformance tests compare the two paths for every family; this catches what they cannot know: an
attention kernel, a quantised layer or a release of transformers that reads its arguments otherwise.
"""

from dataclasses import replace
from typing import Any

import torch

from ..eval_mode import evaluating
from .cached import Cut, find_cut
from .kernel import PackedAttention
from .layout import Layout, find_layout
from .state_check import unread_states
from .switch import ON_A_CACHE
from .tolerance import ordinary_ids, tolerance

# Three rows begin in one column and two in another; their last tokens are padding in places, too.
PADDING, PREFIX, SUFFIXES = (3, 3, 3, 0, 0), 24, (9, 3, 5, 5, 4)

# Tokens behind the prefix that two of the rows have in common, too.
TURN, OF_TURN = 6, (1, 2)


def disagreement(decoder: Any, way: str, attention: PackedAttention) -> str | None:
    """Why a decoder must not share in some way: it differs from its plain forward. None if it does not.

    Args:
        decoder: The text decoder of a policy; its mode and gradients are left as they are.
        way: `IN_ONE_ROW` or `ON_A_CACHE`.
        attention: Chooses the kernel for a packed row.
    """
    unread = unread_states(decoder)
    if unread is not None:
        return unread
    numbers = _rows()
    layout = _layouts(numbers, numbers >= 0, way, attention).to(decoder.device)
    mask = (numbers >= 0).to(decoder.device)
    words = ordinary_ids(decoder, int(numbers.max()) + 1)
    embeddings = decoder.get_input_embeddings()(words[numbers.clamp(min=0).to(decoder.device)])
    arguments = {"inputs_embeds": embeddings, "attention_mask": mask.long(), "use_cache": False}
    with torch.no_grad(), evaluating(decoder):
        plain = decoder(**arguments).last_hidden_state[mask].float()
        try:
            shared = decoder(**arguments, **{way: layout}).last_hidden_state[mask].float()
        except Exception as error:  # a model that nobody has seen may do anything with what it is given
            return f"{type(error).__name__}: {error}"
    difference = ((shared - plain).abs().max() / plain.abs().max()).item()
    allowed = tolerance(embeddings.dtype)
    if difference <= allowed:
        return None
    return (
        f"on {mask.sum()} test tokens, hidden states of {type(decoder).__name__} differ by "
        f"{difference:.1e} of the largest (at most {allowed:.0e} is rounding)"
    )


def _layouts(numbers: torch.Tensor, mask: torch.Tensor, way: str, attention: PackedAttention) -> Layout | Cut:
    layout = find_layout(numbers, mask, toll=0)
    if layout is None:
        raise ValueError("Got test rows with padding in their middle. Expected it at their ends.")
    if way == ON_A_CACHE:
        return find_cut(layout, numbers, mask, torch.zeros_like(mask))
    return replace(layout, attention=attention)


def _rows() -> torch.Tensor:
    """(5, T) numbers of the words in rows with common prefixes, padded on both sides with -1."""
    numbers = torch.full((len(SUFFIXES), max(PADDING) + PREFIX + TURN + max(SUFFIXES)), -1)
    for row, (start, suffix) in enumerate(zip(PADDING, SUFFIXES, strict=True)):
        common = PREFIX + (TURN if row in OF_TURN else 0)
        own = PREFIX + TURN + 1 + row * max(SUFFIXES) + torch.arange(suffix)
        numbers[row, start : start + common + suffix] = torch.cat([torch.arange(1, common + 1), own])
    return numbers
