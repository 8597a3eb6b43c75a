"""One prompt, one prefill: `generate` runs a prompt once, and its rows share one copy of the cache.

What unequal prompts begin with, as the later turns of a conversation do, is run once as well.
Where a decoder has windows, states or anything else beside plain attention, each row gets a copy.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache

from ..ranks import most, ranks
from ..rotary import unsteady
from ..row_images import RowImages
from .distinct_prompts import DistinctPrompts, attends_to_all
from .known_caches import unknown_cache
from .prefill_check import disagreement, step_disagreement
from .prefix_cache import share_prompts
from .share import keys_of_rows, watched

# Values of settings that `generate` may name and that change nothing.
PLAIN = {
    "cache_implementation": "dynamic",
    "num_beams": 1,
    "num_return_sequences": 1,
    "output_attentions": False,
    "output_hidden_states": False,
    "use_cache": True,
}

# Settings that concern what is sampled from the logits, or when to stop: rows stay one prompt each.
SETTINGS = frozenset(
    {
        "_from_model_config",
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "disable_compile",
        "do_sample",
        "eos_token_id",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "max_length",
        "max_new_tokens",
        "max_time",
        "min_length",
        "min_new_tokens",
        "min_p",
        "no_repeat_ngram_size",
        "output_logits",
        "output_scores",
        "pad_token_id",
        "remove_invalid_values",
        "renormalize_logits",
        "repetition_penalty",
        "return_dict_in_generate",
        "stop_strings",
        "suppress_tokens",
        "temperature",
        "top_h",
        "top_k",
        "top_p",
        "transformers_version",
        "typical_p",
    }
)

# Arguments of `generate` that are no settings, and what the policy adds to them.
ARGUMENTS = frozenset(
    {
        "attention_mask",
        "generation_config",
        "input_ids",
        "logits_processor",
        "mm_token_type_ids",
        "stopping_criteria",
        "streamer",
        "synced_gpus",
        "token_type_ids",
        "tokenizer",
        "use_model_defaults",
    }
)


def prefill_once(
    policy: Any, kwargs: dict[str, Any], rows: Sequence[RowImages], sharded: bool
) -> dict[str, Any] | None:
    """Run the distinct prompts of a batch through the model, all but their last token.

    Args:
        policy: A policy.
        kwargs: The arguments of `generate`, located (see `locate.locate`).
        rows: The images of each row.
        sharded: The weights are spread over ranks, which all are here and must do the same.

    Returns:
        Arguments for the stock `generate` with a filled key-value cache and no images; None where
        prompts do not repeat or the settings need a plain run.
    """
    backbone = policy.base_model
    if not backbone.sharing.may_prefill(_reason(policy, kwargs) or watched(backbone)):
        return None
    ids, mask = kwargs["input_ids"], kwargs.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    keys = torch.cat([keys_of_rows(backbone, ids, rows), mask.cpu().long()], dim=1)
    _, inverse = torch.unique(keys, dim=0, return_inverse=True)
    first = [int((inverse == number).nonzero()[0]) for number in range(int(inverse.max()) + 1)]
    where = torch.tensor(first, device=ids.device)
    prompts = DistinctPrompts(policy, ids[where], mask[where], [rows[row] for row in first])
    cut = bool((keys[:, ids.shape[1] - 2 : ids.shape[1]] < 0).all(dim=1).any())
    layout = None if sharded or cut else prompts.layout()
    common = 0 if layout is None else layout.shared
    pays = backbone.sharing.prefill_pays((len(rows) - len(first)) * ids.shape[1] + common)
    if not (most(pays, ids.device) if sharded else pays):
        return None
    cache = DynamicCache(config=backbone.decoder.config)  # some backbones make none of their own
    reason = unknown_cache(cache) or asked(backbone, step_disagreement)
    if cut:
        reason = "a prompt ends inside an image"
    if reason is not None:
        backbone.sharing.refused[f"generate: {reason}"] += 1
        return None
    inverse = inverse.to(ids.device)
    computed = prompts.fill(cache, layout, sharded)
    if cache.get_seq_length() != ids.shape[1] - 1:
        backbone.sharing.refused["generate: the model keeps its cache elsewhere"] += 1
        return None
    # Keys that all rows of a prompt read, where nothing else is kept; else each row has a copy.
    filled: Cache = cache
    repeated, all_seen = len(first) < len(rows), attends_to_all(backbone.decoder.config)
    if repeated and all_seen and asked(backbone, disagreement) is None:
        filled = share_prompts(cache, inverse)
    else:
        cache.reorder_cache(inverse)
    if backbone.processing_class.state.family.grids:
        backbone.rope_deltas = backbone.rope_deltas[inverse]
    backbone.sharing.prompts += len(rows)
    backbone.sharing.prefilled += len(first)
    backbone.sharing.prompt_tokens += len(rows) * (ids.shape[1] - 1)
    backbone.sharing.prompt_tokens_prefilled += computed
    # transformers takes a cache or the name of one.
    unnamed = {name: value for name, value in kwargs.items() if name != "cache_implementation"}
    return unnamed | {"past_key_values": filled, "attention_mask": mask}


def asked(backbone: Any, check: Callable[[Any], str | None]) -> str | None:
    """What a check of the decoder has found; it runs once per dtype, device and attention kernel.

    Args:
        backbone: A policy's backbone.
        check: Takes the decoder, and says in words what is wrong, or None.
    """
    decoder, verdicts = backbone.decoder, backbone.rollouts.prefill_refusals
    kind = (check, decoder.dtype, decoder.device, decoder.config._attn_implementation)
    # Alone only: sharded models wait in an extra forward for ranks that may not make it.
    if kind not in verdicts and ranks() == 1 and decoder.device.type != "meta":
        verdicts[kind] = check(decoder)
    return verdicts.get(kind)


def _reason(policy: Any, kwargs: dict[str, Any]) -> str | None:
    """Why the settings of a `generate` call need a plain run; None if they do not."""
    for name, value in kwargs.items():  # settings may come as arguments of `generate`, too
        if name not in ARGUMENTS | SETTINGS and not _is_plain(name, value):
            return f"generate: {name} is given"
    for settings in (kwargs.get("generation_config"), policy.generation_config):
        for name, value in (settings.to_diff_dict() if settings is not None else {}).items():
            # What the call's config leaves open, transformers fills from the model's own.
            plain = (
                _is_plain(name, value) and name != "cache_implementation"
            )  # a name there cannot be left out
            if name not in SETTINGS and kwargs.get(name) is None and not plain:
                return f"generate: {name} is {value}"
    if kwargs["input_ids"].shape[1] < 2:
        return "generate: the prompt is one token"
    # All but the last token are run before it, and reach less far.
    far = unsteady(kwargs["input_ids"].shape[1], policy.base_model.sharing.steady_positions)
    if far is not None:
        return f"generate: {far}"
    if kwargs.get("attention_mask") is None and _may_be_padded(policy, kwargs):
        return "generate: there is no attention_mask, and prompts may be padded"
    for name in ("output_attentions", "output_hidden_states"):
        # Set by users, or absent.
        if getattr(policy.config, name, False):
            return f"generate: {name} is set in the model's config"
    return None


def _is_plain(name: str, value: Any) -> bool:
    return value is None or (name in PLAIN and value == PLAIN[name])


def _may_be_padded(policy: Any, kwargs: dict[str, Any]) -> bool:
    """Whether `generate` might find padding by its id, as it does without a mask."""
    settings = (kwargs.get("generation_config"), policy.generation_config, policy.processing_class)
    # The passed generation config may be None.
    named = [kwargs.get("pad_token_id"), *(getattr(source, "pad_token_id", None) for source in settings)]
    return any(bool((kwargs["input_ids"] == pad).any()) for pad in named if pad is not None)
