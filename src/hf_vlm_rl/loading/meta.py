"""A policy on the meta device, from everything of a checkpoint but its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, ProcessorMixin

from ..processing.images.store import ImageStore
from .auto import AutoVLMPolicy
from .damage import damage_named
from .formats import reader_of
from .location import file_arguments, read_config
from .stock import load_config, load_processor, without_weights


@dataclass(frozen=True)
class Checkpoint:
    """What is read of a checkpoint: everything but its weights.

    Attributes:
        source: Hub id or directory.
        config: Its config, in transformers' format.
        processor: Its native processor.
    """

    source: str
    config: PreTrainedConfig
    processor: ProcessorMixin


def read_checkpoint(source: str, located: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read config and processor; weights are not downloaded.

    Raises:
        CheckpointError: If there is no config.json.
        UnsupportedModelError: If it is no vision-language model, or an adapter.
    """
    located = dict(located or {})
    stored = read_config(source, file_arguments(located))
    original = reader_of(stored["model_type"])
    if original is not None:
        return Checkpoint(source, *original.read_headers(source, stored, file_arguments(located)))
    config = load_config(stored, source, located)
    return Checkpoint(source, config, load_processor(source, located))


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
