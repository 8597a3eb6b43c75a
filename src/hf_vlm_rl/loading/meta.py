"""A policy on the meta device, from everything of a checkpoint but its weights."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub import HfApi
from transformers import PreTrainedConfig, ProcessorMixin
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from ..families import family_for
from ..processing.images.store import ImageStore
from .auto import AutoVLMPolicy, load_processor, stock_class
from .formats import ORIGINAL_FORMATS
from .internvl_chat.config import convert_config
from .internvl_chat.files import Files
from .internvl_chat.processor import make_processor
from .internvl_chat.shards import INDEX, SINGLE, stored_tensors
from .internvl_chat.weights import HEAD_KEYS


@dataclass(frozen=True)
class Checkpoint:
    """What is read of a checkpoint.

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

    Args:
        source: Hub id or directory, in transformers' format or an original one.
        located: `revision`, `token`, `cache_dir`, ...

    Raises:
        UnsupportedModelError: If no family describes the checkpoint.
    """
    located = dict(located or {})
    stored, _ = PreTrainedConfig.get_config_dict(source, **located)
    if stored.get("model_type") in ORIGINAL_FORMATS:
        return _read_original(source, stored, located)
    family = family_for(stored.get("model_type"), source)
    config = stock_class(CONFIG_MAPPING_NAMES, family).from_pretrained(source, **located)
    return Checkpoint(source, config, load_processor(source, located))


def _read_original(source: str, stored: Mapping[str, Any], located: Mapping[str, Any]) -> Checkpoint:
    files = Files(source, located)
    processor = make_processor(files, stored, {})
    # `open_checkpoint` would download the weights to see whether there is a head among them.
    head = not set(HEAD_KEYS).isdisjoint(_tensor_names(files))
    return Checkpoint(source, convert_config(stored, processor.image_token_id, head, source), processor)


def _tensor_names(files: Files) -> Collection[str]:
    if os.path.isdir(files.source) and files.find(SINGLE) is not None:
        return stored_tensors(files).keys()
    if index := files.json(INDEX):
        return index["weight_map"].keys()
    known = {key: files.located[key] for key in ("revision", "token") if key in files.located}
    return HfApi().get_safetensors_metadata(files.source, **known).weight_map.keys()


def policy_on_meta(checkpoint: Checkpoint, dtype: torch.dtype, store: ImageStore) -> Any:
    """A policy whose weights have shapes only.

    Args:
        checkpoint: What was read.
        dtype: Of the weights.
        store: Where its processing class keeps images.
    """
    with torch.device("meta"):
        policy = AutoVLMPolicy.from_config(
            checkpoint.config, checkpoint.processor, image_store=store, dtype=dtype
        )
    # The cache of features is for weights that have numbers.
    policy.base_model._features.limit_bytes = 0
    return policy
