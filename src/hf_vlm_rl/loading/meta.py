"""A policy on the meta device, from everything of a checkpoint but its weights."""

from typing import Any

import torch

from ..processing.images.store import ImageStore
from .auto import AutoVLMPolicy
from .checkpoint import Checkpoint
from .damage import damage_named
from .stock import without_weights


def policy_on_meta(checkpoint: Checkpoint, dtype: torch.dtype, store: ImageStore) -> Any:
    """A policy whose weights have shapes only."""
    with without_weights(), damage_named(checkpoint.source):
        policy = AutoVLMPolicy.from_config(
            checkpoint.config, checkpoint.processor, image_store=store, dtype=dtype
        )
    # Features on the meta device have no values to cache.
    policy.base_model.feature_cache.limit_bytes = 0
    policy.base_model.verdicts.only_shapes = True
    return policy
