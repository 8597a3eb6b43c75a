"""Write a checkpoint in the original format as one of transformers' own."""

import functools
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import GotOcr2ImageProcessorPil, PreTrainedModel, ProcessorMixin

from ...errors import CheckpointError, UnsupportedModelError
from ..location import read_config
from .load import open_checkpoint
from .shards import DTYPES, stored_tensors
from .weights import check_weights

MODEL_TYPE = "internvl_chat"
SHARD_BYTES = 5_000_000_000


def convert(
    source: str | os.PathLike, destination: str | os.PathLike, shard_bytes: int = SHARD_BYTES, **located: Any
) -> Path:
    """Convert a checkpoint.

    The model is loaded into memory in the dtype that it is stored in; the peak is 1.3 times the size of its
    weights (20 GB for 8B in bfloat16), 2.2 times for a mixture of experts. Everything is written to a
    temporary folder beside `destination`, which gets its name at the end.

    The result computes what the original does, for the same pixels. Plain transformers resizes images with
    torchvision, which differs from the original's Pillow by up to two of 255 steps. `located` has `revision`,
    `token`, `cache_dir`, ... for a Hub id. A weight file has at most `shard_bytes`, unless a single tensor is
    larger.

    Raises:
        CheckpointError: If the source is missing a file or damaged, or the disk is full.
        FileExistsError: If there is something at `destination`.
        UnsupportedModelError: If a stock checkpoint cannot express the model.
    """
    source, destination = os.fspath(source), Path(destination).resolve()  # a link may lead to another disk
    stored = read_config(source, located)
    if stored["model_type"] != MODEL_TYPE:
        raise UnsupportedModelError(
            f"{source!r} has model_type {stored['model_type']!r}. Expected {MODEL_TYPE!r}; other "
            "checkpoints need no conversion."
        )
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise FileExistsError(
            f"{destination} exists and is not empty. Remove it or choose another directory."
        )
    if destination.is_mount():
        raise FileExistsError(f"{destination} is a disk of its own. Choose a directory inside it.")
    checkpoint = open_checkpoint(source, stored, located)
    if type(checkpoint.processor.image_processor) is not GotOcr2ImageProcessorPil:
        raise UnsupportedModelError(
            f"config.json of {source!r} has use_thumbnail=false; transformers' processor always adds the "
            "thumbnail. Load it with AutoVLMPolicy.from_pretrained, which leaves it out."
        )
    check_weights(checkpoint.files, checkpoint.config, checkpoint.backbone)
    # The narrowest dtype that holds all stored ones, so that nothing is rounded.
    dtypes = [DTYPES[name] for name in {tensor.dtype for tensor in stored_tensors(checkpoint.files).values()}]
    model = checkpoint.load_model(dtype=functools.reduce(torch.promote_types, dtypes))

    partial = destination.parent / f".{destination.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)  # of a run that was killed
    partial.mkdir(parents=True)
    try:
        _write(model, checkpoint.processor, partial, shard_bytes)
        os.replace(partial, destination)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return destination


def _write(model: PreTrainedModel, processor: ProcessorMixin, folder: Path, shard_bytes: int) -> None:
    try:
        processor.save_pretrained(folder)
        model.save_pretrained(folder, max_shard_size=shard_bytes)
    except (SafetensorError, OSError) as error:
        file = error.filename if isinstance(error, OSError) else None
        size = sum(tensor.nbytes for tensor in model.state_dict().values()) / 1e9
        free = shutil.disk_usage(folder.parent).free / 1e9
        raise CheckpointError(
            f"Cannot write {file or folder / 'model.safetensors'} ({error}). The weights need {size:.3f} GB, "
            f"and {folder.parent} has {free:.1f} GB free. Nothing was left there; free some space or choose "
            "another directory."
        ) from error
