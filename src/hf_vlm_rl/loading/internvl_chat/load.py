"""A checkpoint in the original format, opened: its config, its processor and a loader for its weights."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from huggingface_hub import HfApi
from transformers import GenerationConfig, InternVLConfig, InternVLProcessor, PreTrainedModel

from ..damage import damage_named
from .config import backbone_of, convert_config
from .files import Files
from .processor import make_processor
from .shards import INDEX, SINGLE, stored_tensors
from .weights import has_head, load_weights


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    Attributes:
        config: The converted config, with the original id as `name_or_path`.
        processor: The native processor.
        files: Where it is.
        stored: Its config.json.
    """

    config: InternVLConfig
    processor: InternVLProcessor
    files: Files
    stored: Mapping[str, Any]

    @property
    def backbone(self) -> str:
        """Class name of the original language model."""
        return backbone_of(self.stored, self.files.source)

    def load_model(self, **kwargs: Any) -> PreTrainedModel:
        """The stock model with the checkpoint's weights.

        Raises:
            CheckpointError: If a weight is missing, unexpected or of another shape.
        """
        config = kwargs.pop("config", None) or self.config
        model = load_weights(self.files, config, self.backbone, **kwargs)
        model.generation_config = generation_config(self.files, self.processor.tokenizer)
        return model


def generation_config(files: Files, tokenizer: Any) -> GenerationConfig:
    """generation_config.json, with the ids of the chat format."""
    stored = files.json("generation_config.json")
    settings = {
        key: value
        for key, value in stored.items()
        if key not in ("_from_model_config", "transformers_version")
    }
    # chat() of the original stops at the template's token and nowhere else, whatever the file lists.
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return GenerationConfig(**settings | ids)


def open_checkpoint(source: str, stored: Mapping[str, Any], located: Mapping[str, Any]) -> Checkpoint:
    """Read everything but the weights.

    Raises:
        CheckpointError: If a file is missing or damaged.
        UnsupportedModelError: If transformers' InternVL lacks a part of the model.
    """
    config, processor = read_headers(source, stored, located)
    return Checkpoint(config, processor, Files(source, located), stored)


def read_headers(
    source: str, stored: Mapping[str, Any], located: Mapping[str, Any]
) -> tuple[InternVLConfig, InternVLProcessor]:
    """Config and processor of a checkpoint; of its weights, only the names are read."""
    files = Files(source, located)
    with damage_named(source):
        backbone_of(stored, source)  # refuses what is no InternVL before its tokenizer is read
        processor = make_processor(files, stored)
        return convert_config(
            stored, processor.image_token_id, lambda: has_head(_tensor_names(files)), source
        ), processor


def _tensor_names(files: Files) -> Collection[str]:
    if index := files.json(INDEX):
        return index["weight_map"].keys()
    here = replace(files, located={**files.located, "local_files_only": True})
    if os.path.isdir(files.source) or files.located.get("local_files_only") or here.find(SINGLE):
        return stored_tensors(here).keys()
    known = {key: files.located[key] for key in ("revision", "token") if key in files.located}
    return HfApi().get_safetensors_metadata(files.source, **known).weight_map.keys()
