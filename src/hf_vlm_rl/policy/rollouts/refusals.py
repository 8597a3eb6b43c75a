"""Why a `generate` goes on token by token, although drafts are asked for."""

from collections.abc import Mapping
from typing import Any

from transformers import EosTokenCriteria, GenerationMixin, MaxLengthCriteria
from transformers.cache_utils import DynamicLayer

from ..ranks import is_sharded
from ..sharing.distinct_prompts import attends_to_all
from ..sharing.prefill import asked
from ..sharing.prefill_check import draft_disagreement, shared_draft_disagreement
from ..sharing.prefix_cache import PrefixLayer, SharedPrompts
from .processors import looks_back

# They look at the latest token of a row, and at its length.
CRITERIA = (EosTokenCriteria, MaxLengthCriteria)

LAYERS = (DynamicLayer, PrefixLayer)


def refusal(policy: Any, loop: Any, kwargs: Mapping[str, Any]) -> str | None:
    """Why drafts cannot be checked in a `generate`, whatever its first step is; None if they may be.

    Args:
        policy: A policy.
        loop: The sampling loop of its class.
        kwargs: The arguments of the loop; rows may leave it when they are finished.
    """
    backbone = policy.base_model
    if loop is not GenerationMixin._sample:
        return "the model has a sampling loop of its own"
    if kwargs.get("synced_gpus") or is_sharded(backbone):
        return "other ranks count on as many forwards as tokens"
    if kwargs.get("streamer") is not None:
        return "a streamer wants each token in its turn"
    processor = looks_back(kwargs["logits_processor"])
    if processor is not None:
        return f"{processor} may look at the tokens before"
    for criterion in kwargs["stopping_criteria"]:
        if type(criterion) not in CRITERIA:
            return f"{type(criterion).__name__} may look at more than a row's latest token"
    if not any(type(criterion) is MaxLengthCriteria for criterion in kwargs["stopping_criteria"]):
        return "completions have no longest length"
    if not attends_to_all(backbone.decoder.config):
        return "not all layers of the decoder keep keys of all tokens"
    return None


def refusal_of_step(policy: Any, step: Mapping[str, Any]) -> str | None:
    """Why the first step of decoding cannot be run on several tokens of a row; None if it can.

    Args:
        policy: A policy.
        step: The arguments of its forward, with which rows may leave.
    """
    cache, mask = step["past_key_values"], step.get("attention_mask")
    for layer in cache.layers:
        if type(layer) not in LAYERS:
            return f"the cache has a {type(layer).__name__}"
    if step.get("position_ids") is None:
        return "the model counts positions itself"
    if step.get("token_type_ids") is not None:
        return "the model's decoding step takes token_type_ids"
    # Without one, all tokens are seen.
    if mask is not None and mask.shape[1:] != (cache.get_seq_length() + 1,):
        return "the model's decoding step takes another mask than that of its tokens"
    check = shared_draft_disagreement if isinstance(cache, SharedPrompts) else draft_disagreement
    return asked(policy.base_model, check)
