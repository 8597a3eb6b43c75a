"""Runs a decoder on a few tokens before `generate` prefills each prompt once, or checks drafts.

A prompt's last token becomes a step, which some decoders compute otherwise than a whole prompt. And a cache
that shares its prompts takes the place of one that attention reads. What a decoder keeps there, and how it
makes keys of it, is its own affair: multi-head latent attention keeps compressed ones.
"""

from typing import Any

import torch
from transformers import Cache, DynamicCache

from ..eval_mode import evaluating
from .prefix_cache import OtherAttention, share_prompts
from .tolerance import ordinary_ids, tolerance

# Which of two prompts each row continues, and how the prompts are padded.
PROMPT = (0, 1, 0)
PADDING = (2, 0)
LENGTH = 6

# Largest difference that a prompt's last token may have, as a share of the largest hidden state.
STEP_TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}


def step_disagreement(decoder: Any) -> str | None:
    """Why a prompt's last token must not be left for a step; None if it may.

    Args:
        decoder: The text decoder of a policy; its mode and gradients are left as they are.
    """
    ids = ordinary_ids(decoder, LENGTH)[None]
    mask = (torch.arange(LENGTH, device=decoder.device) >= PADDING[0]).long()[None]
    rows = torch.zeros(2, dtype=torch.long, device=decoder.device)
    with torch.no_grad(), evaluating(decoder):
        cache = _filled(decoder, ids[:, :-1], mask[:, :-1])
        cache.reorder_cache(rows)
        found = _run(decoder, ids[rows, -1:], mask[rows], cache).last_hidden_state.float()
        expected = _run(decoder, ids[rows], mask[rows], DynamicCache(config=decoder.config)).last_hidden_state
    expected = expected[:, -1:].float()
    difference = ((found - expected).abs().max() / expected.abs().max()).item()
    allowed = tolerance(decoder.dtype, STEP_TOLERANCE)
    if difference <= allowed:
        return None
    return (
        f"a step of {type(decoder).__name__} differs from a whole prompt by {difference:.1e} of the largest "
        f"hidden state (at most {allowed:.0e} is rounding)"
    )


def disagreement(decoder: Any) -> str | None:
    """Why a decoder's rows must not share their prompts' cache; None if they may.

    Args:
        decoder: The text decoder of a policy; its mode and gradients are left as they are.
    """
    device = decoder.device
    prompt = torch.tensor(PROMPT, device=device)
    words = ordinary_ids(decoder, 2 * LENGTH + len(PROMPT))
    ids, step = words[: 2 * LENGTH].view(2, LENGTH), words[2 * LENGTH :, None]
    mask = (torch.arange(LENGTH, device=device) >= torch.tensor(PADDING, device=device)[:, None]).long()
    with torch.no_grad(), evaluating(decoder):
        shared = share_prompts(_filled(decoder, ids, mask), prompt)
        try:
            found = _step(decoder, step, mask[prompt], shared)
        except OtherAttention as error:
            return str(error)
        except Exception as error:  # a model that nobody has seen may do anything with what it is given
            return f"{type(error).__name__}: {error}"
        expected = _step(decoder, step, mask[prompt], _filled(decoder, ids[prompt], mask[prompt]))
    difference = ((found - expected).abs().max() / expected.abs().max()).item()
    allowed = tolerance(decoder.dtype)
    if difference <= allowed:
        return None
    return (
        f"with a shared cache, hidden states of {type(decoder).__name__} differ by {difference:.1e} of the "
        f"largest (at most {allowed:.0e} is rounding)"
    )


def draft_disagreement(decoder: Any) -> str | None:
    """Why drafts must not be checked in one forward and hidden where they are wrong; None if they may.

    Args:
        decoder: The text decoder of a policy; its mode and gradients are left as they are.
    """
    return _draft_disagreement(decoder, shared=False)


def shared_draft_disagreement(decoder: Any) -> str | None:
    """As `draft_disagreement`, for a cache that shares its prompts."""
    return _draft_disagreement(decoder, shared=True)


def _draft_disagreement(decoder: Any, shared: bool) -> str | None:
    device = decoder.device
    words = ordinary_ids(decoder, 2 * LENGTH + 11)
    ids = words[: 2 * LENGTH].view(2, LENGTH)
    mask = (torch.arange(LENGTH, device=device) >= torch.tensor(PADDING, device=device)[:, None]).long()
    right = words[2 * LENGTH : -1].view(2, 5)  # behind the prompts; the first row has three
    drafts, kept = right[:, :3].clone(), torch.ones_like(right[:, :3])
    drafts[0, 1:], kept[0, 1:] = words[-1], 0
    step = torch.stack([right[0, 1:3], right[1, 3:5]])
    ones = torch.ones_like(step)
    with torch.no_grad(), evaluating(decoder):
        cache = _filled(decoder, ids, mask)
        if shared:
            cache = share_prompts(cache, torch.arange(2, device=device))
        try:
            _step(decoder, drafts, mask, cache)
            found = _step(decoder, step, torch.cat([mask, kept], dim=1), cache)
        except Exception as error:  # a model that nobody has seen may do anything with what it is given
            return f"{type(error).__name__}: {error}"
        whole = torch.cat([mask, torch.ones_like(kept), ones], dim=1)
        whole[0, -2:] = 0
        plain = _run(decoder, torch.cat([ids, right], dim=1), whole, DynamicCache(config=decoder.config))
    expected = torch.stack([plain.last_hidden_state[0, -4:-2], plain.last_hidden_state[1, -2:]]).float()
    difference = ((found - expected).abs().max() / expected.abs().max()).item()
    allowed = tolerance(decoder.dtype, STEP_TOLERANCE)
    if difference <= allowed:
        return None
    return (
        f"behind a draft, hidden states of {type(decoder).__name__} differ by {difference:.1e} of the "
        f"largest (at most {allowed:.0e} is rounding)"
    )


def _filled(decoder: Any, ids: torch.Tensor, mask: torch.Tensor) -> Any:
    cache = DynamicCache(config=decoder.config)
    _run(decoder, ids, mask, cache)
    return cache


def _step(decoder: Any, ids: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
    mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
    return _run(decoder, ids, mask, cache).last_hidden_state.float()


def _run(decoder: Any, ids: torch.Tensor, mask: torch.Tensor, cache: Cache) -> Any:
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    return decoder(
        inputs_embeds=decoder.get_input_embeddings()(ids),
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
    )
