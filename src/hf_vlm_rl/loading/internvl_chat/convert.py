"""Write a checkpoint in the original format as one of transformers' own."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GotOcr2ImageProcessorPil, PreTrainedConfig

from ...errors import CheckpointError, UnsupportedModelError
from .load import Checkpoint, generation_config, open_checkpoint
from .shards import stored_tensors
from .weights import check_weights
from .write import SHARD_BYTES, write_weights

MODEL_TYPE = "internvl_chat"


def convert(
    source: str | os.PathLike,
    destination: str | os.PathLike,
    shard_bytes: int = SHARD_BYTES,
    **located: Any,
) -> Path:
    """Convert a checkpoint.

    Everything is written to a temporary folder beside `destination`, which gets its name at the end.

    The result computes what the original does, for the same pixels. Plain transformers resizes images
    with torchvision, which differs from the original's Pillow by up to two of 255 steps.

    Args:
        source: Hub id or directory of a checkpoint in the original format.
        destination: Directory to make. Must not exist, or be empty.
        shard_bytes: Largest size of one weight file, in bytes; also the memory this takes.
        **located: `revision`, `token`, `cache_dir`, ... for a Hub id.

    Returns:
        `destination`.

    Raises:
        CheckpointError: If the source is missing a file or damaged, or the disk is full.
        FileExistsError: If there is something at `destination`.
        UnsupportedModelError: If a stock checkpoint cannot express the model.
    """
    source, destination = os.fspath(source), Path(destination)
    stored, _ = PreTrainedConfig.get_config_dict(source, **located)
    if stored.get("model_type") != MODEL_TYPE:
        raise UnsupportedModelError(
            f"{source!r} has model_type {stored.get('model_type')!r}. Expected {MODEL_TYPE!r}; other "
            "checkpoints need no conversion."
        )
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise FileExistsError(
            f"{destination} exists and is not empty. Remove it or choose another directory."
        )
    checkpoint = open_checkpoint(source, stored, located)
    _check_expressible(checkpoint)
    tensors = stored_tensors(checkpoint.files)
    check_weights(checkpoint.files, tensors, checkpoint.config, checkpoint.backbone)

    destination.parent.mkdir(parents=True, exist_ok=True)
    for leftover in destination.parent.glob(f".{destination.name}.*.partial"):
        shutil.rmtree(leftover)  # of a run that was killed
    partial = tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent)
    try:
        _write(checkpoint, tensors, Path(partial), shard_bytes)
        _make_readable(Path(partial))
        os.replace(partial, destination)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return destination


def _write(checkpoint: Checkpoint, tensors: Mapping[str, Any], folder: Path, shard_bytes: int) -> None:
    try:
        checkpoint.config.save_pretrained(folder)
        generation_config(checkpoint.files, checkpoint.processor.tokenizer).save_pretrained(folder)
        checkpoint.processor.save_pretrained(folder)
        write_weights(checkpoint.config, checkpoint.backbone, tensors, folder, shard_bytes)
    except CheckpointError:
        raise
    except OSError as error:
        free = shutil.disk_usage(folder.parent).free / 1e9
        raise CheckpointError(
            f"Cannot write {error.filename or folder}: {error.strerror or error} ({free:.1f} GB free in "
            f"{folder.parent}). Nothing was left there; free some space or choose another directory."
        ) from error


def _check_expressible(checkpoint: Checkpoint) -> None:
    if type(checkpoint.processor.image_processor) is not GotOcr2ImageProcessorPil:
        raise UnsupportedModelError(
            f"config.json of {checkpoint.files.source!r} has use_thumbnail=false; transformers' processor "
            "always adds the thumbnail. Load it with AutoVLMPolicy.from_pretrained, which leaves it out."
        )


def _make_readable(folder: Path) -> None:
    """Give files the usual permissions; mkdtemp and safetensors make private ones."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~mask)
