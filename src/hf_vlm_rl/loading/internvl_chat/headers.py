"""What a checkpoint in the original format stores, without downloading its weights."""

import os
from collections.abc import Collection, Mapping
from typing import Any

from huggingface_hub import HfApi
from transformers import InternVLConfig, InternVLProcessor

from ..damage import damage_named
from .config import convert_config
from .files import Files
from .processor import make_processor
from .shards import INDEX, SINGLE, stored_tensors
from .weights import HEAD_KEYS


def read_headers(
    source: str, stored: Mapping[str, Any], located: Mapping[str, Any]
) -> tuple[InternVLConfig, InternVLProcessor]:
    """Config and processor of a checkpoint; of its weights, only the names are read."""
    files = Files(source, located)
    with damage_named(source):
        processor = make_processor(files, stored)
        # `open_checkpoint` would download the weights to see whether there is a head among them.
        head = not set(HEAD_KEYS).isdisjoint(_tensor_names(files))
        return convert_config(stored, processor.image_token_id, head, source), processor


def _tensor_names(files: Files) -> Collection[str]:
    if os.path.isdir(files.source) and files.find(SINGLE) is not None:
        return stored_tensors(files).keys()
    if index := files.json(INDEX):
        return index["weight_map"].keys()
    known = {key: files.located[key] for key in ("revision", "token") if key in files.located}
    return HfApi().get_safetensors_metadata(files.source, **known).weight_map.keys()
