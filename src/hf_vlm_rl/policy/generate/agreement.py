"""Two checks of a decoder in `generate`: may a prompt's last token run as a step, and may rows share a cache?

Some decoders compute a step otherwise than a whole prompt. Some keep no keys in their cache, but what they
make keys from: multi-head latent attention keeps them compressed.
"""

from typing import Any, cast

import torch
from transformers import Cache, DynamicCache

from ...compat import CACHE
from ..caches.prefix_cache import share_prompts
from ..probe import OF_BATCHES, OF_STEPS, Check, ordinary_ids

# Which of two prompts each row continues, and the tokens of padding before each prompt.
PROMPT = (0, 1, 0)
PADDING = (2, 0)
LENGTH = 6


def _whole_prompt(decoder: Any) -> torch.Tensor:
    """(2, 1, H): the last hidden state of a prompt in two rows, computed at once."""
    ids, mask, rows = _prompt_in_two_rows(decoder)
    whole = _run(decoder, ids[rows], mask[rows], DynamicCache(config=decoder.config))
    return whole[:, -1:]


def _last_token_as_a_step(decoder: Any) -> torch.Tensor:
    """(2, 1, H): the same state, computed as a step on a cache that the other tokens filled once."""
    ids, mask, rows = _prompt_in_two_rows(decoder)
    cache = _filled(decoder, ids[:, :-1], mask[:, :-1])
    cache.reorder_cache(cast(torch.LongTensor, rows))
    return _run(decoder, ids[rows, -1:], mask[rows], cache)


def _step_on_own_caches(decoder: Any) -> torch.Tensor:
    """(3, 1, H): hidden states of three rows' next tokens; each row has a copy of its prompt."""
    ids, mask, prompt, step = _prompts_and_step(decoder)
    return _step(decoder, step, mask[prompt], _filled(decoder, ids[prompt], mask[prompt]))


def _step_on_shared_cache(decoder: Any) -> torch.Tensor:
    """(3, 1, H): the same states; rows share one copy of each prompt's keys and values."""
    ids, mask, prompt, step = _prompts_and_step(decoder)
    return _step(decoder, step, mask[prompt], share_prompts(_filled(decoder, ids, mask), prompt.cpu()))


STEP = Check("where a prompt's last token is a step", _whole_prompt, _last_token_as_a_step, OF_STEPS)
SHARED_CACHE = Check("where a cache shares prompts", _step_on_own_caches, _step_on_shared_cache, OF_BATCHES)


def _prompt_in_two_rows(decoder: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(1, T) ids and mask of a padded prompt, and (2,) indices that repeat it as two rows."""
    ids = ordinary_ids(decoder, LENGTH)[None]
    mask = (torch.arange(LENGTH, device=decoder.device) >= PADDING[0]).long()[None]
    return ids, mask, torch.zeros(2, dtype=torch.long, device=decoder.device)


def _prompts_and_step(decoder: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(2, T) ids and mask of two prompts, (3,) which of them each row continues, (3, 1) their next tokens."""
    device = decoder.device
    words = ordinary_ids(decoder, 2 * LENGTH + len(PROMPT))
    mask = torch.arange(LENGTH, device=device) >= torch.tensor(PADDING, device=device)[:, None]
    prompt = torch.tensor(PROMPT, device=device)
    return words[: 2 * LENGTH].view(2, LENGTH), mask.long(), prompt, words[2 * LENGTH :, None]


def _filled(decoder: Any, ids: torch.Tensor, mask: torch.Tensor) -> DynamicCache:
    cache = DynamicCache(config=decoder.config)
    _run(decoder, ids, mask, cache)
    return cache


def _step(decoder: Any, ids: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
    return _run(decoder, ids, torch.cat([mask, torch.ones_like(ids)], dim=1), cache)


def _run(decoder: Any, ids: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    return decoder(
        inputs_embeds=decoder.get_input_embeddings()(ids),
        attention_mask=mask,
        position_ids=positions,
        use_cache=True,
        **{CACHE: cache},
    ).last_hidden_state
