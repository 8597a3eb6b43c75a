"""Converted weights -> safetensors files as `save_pretrained` writes them, one at a time."""

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import InternVLConfig
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils.logging import tqdm

from ...errors import CheckpointError
from .shards import DERIVED, INDEX, SINGLE, StoredTensor
from .weights import convert_weights, skeleton

SHARD_BYTES = 5_000_000_000


def write_weights(
    config: InternVLConfig,
    backbone: str,
    tensors: Mapping[str, StoredTensor],
    folder: Path,
    shard_bytes: int,
) -> None:
    """Convert and write all weights, in the dtype they are stored in.

    Args:
        config: The converted config.
        backbone: Class name of the original language model.
        tensors: What is stored, by original name.
        folder: Where to.
        shard_bytes: Largest size of one file, in bytes, unless a single tensor is larger.

    Raises:
        CheckpointError: If a file cannot be written.
    """
    tensors = {key: tensor for key, tensor in tensors.items() if not key.endswith(DERIVED)}
    planned = {key: tensor.empty for key, tensor in tensors.items()}
    shards = _plan(_named(config, backbone, planned), shard_bytes)
    total = sum(size for shard in shards for size in shard.values())
    files = _file_names(len(shards))
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": total},
            "weight_map": {key: file for file, shard in zip(files, shards, strict=True) for key in shard},
        }
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    remaining = {key: functools.partial(StoredTensor.read, tensor) for key, tensor in tensors.items()}
    stream = _named(config, backbone, remaining)
    with tqdm(total=total, unit="B", unit_scale=True, desc="Converting weights") as bar:
        for file, shard in zip(files, shards, strict=True):
            content = dict(next(stream) for _ in shard)
            _save(content, folder / file)
            bar.update(sum(shard.values()))


def _named(config: InternVLConfig, backbone: str, tensors: Mapping) -> Iterator[tuple[str, torch.Tensor]]:
    """Names in the file and tensors, in the order of the original names."""
    reader, writer = skeleton(config, backbone), skeleton(config)
    for group in convert_weights(reader, tensors):
        for key, tensor in revert_weight_conversion(writer, group).items():
            yield key, tensor.contiguous()


def _plan(stream: Iterator[tuple[str, torch.Tensor]], shard_bytes: int) -> list[dict[str, int]]:
    """Names and sizes of the tensors of each file."""
    shards: list[dict[str, int]] = [{}]
    for key, tensor in stream:
        if shards[-1] and sum(shards[-1].values()) + tensor.nbytes > shard_bytes:
            shards.append({})
        shards[-1][key] = tensor.nbytes
    return shards


def _file_names(count: int) -> list[str]:
    if count == 1:
        return [SINGLE]
    return [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def _save(content: dict[str, torch.Tensor], path: Path) -> None:
    try:
        save_file(content, path, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"Cannot write {path} ({error}), needing {sum(t.nbytes for t in content.values()) / 1e9:.3f} GB. "
            "Nothing was left there; free some space or choose another directory."
        ) from error
