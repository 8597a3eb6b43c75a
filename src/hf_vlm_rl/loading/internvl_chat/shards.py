"""What tensors a checkpoint stores, read from the headers of its safetensors files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ...errors import CheckpointError
from .files import Files, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

# Follows from the config; some exports store it nevertheless.
DERIVED = ".rotary_emb.inv_freq"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint: its safetensors file, its shape, and its dtype as written ("BF16")."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


def stored_tensors(files: Files) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint by name, without reading their values.

    Raises:
        CheckpointError: If a file is missing or damaged, or lacks a tensor that the index lists for it.
    """
    single = files.find(SINGLE)
    if single is not None:
        return _header(single)
    index = files.path(INDEX)
    content = read_json(index)
    places = content.get("weight_map")
    if not isinstance(places, dict) or not places or "metadata" not in content:
        raise CheckpointError(f"{index} has no weight_map or no metadata. It is damaged; download it again.")
    tensors: dict[str, StoredTensor] = {}
    for name in sorted(set(places.values())):
        shard = files.find(name)
        if shard is None:
            first = next(key for key, place in places.items() if place == name)
            others = sum(place == name for place in places.values()) - 1
            raise CheckpointError(
                f"The shard {name} of {files.source!r} is missing; {index.name} has {first!r} and "
                f"{others} other tensors in it. Download it again."
            )
        tensors |= _header(shard)
    for key, name in places.items():
        if key not in tensors:
            raise CheckpointError(
                f"{name} of {files.source!r} has no tensor {key!r}, although {index.name} says so. "
                "Download both files again."
            )
    return tensors


def check_tensors(
    tensors: Mapping[str, StoredTensor], expected: Mapping[str, tuple[int, ...]], files: Files
) -> None:
    """Compare the stored tensors with those that the config asks for.

    Raises:
        CheckpointError: If a tensor is missing, unexpected, of another shape or not of floats.
    """
    problems = [
        f"{tensor.file.name}: {key!r} has shape {list(tensor.shape)}, expected {list(expected[key])}"
        for key, tensor in tensors.items()
        if key in expected and tensor.shape != tuple(expected[key])
    ]
    names = sorted({tensor.file.name for tensor in tensors.values()})
    where = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
    problems += [f"{where}: {key!r} is missing" for key in expected if key not in tensors]
    problems += [
        f"{tensor.file.name}: {key!r} is not part of this model"
        for key, tensor in tensors.items()
        if key not in expected and not key.endswith(DERIVED)
    ]
    problems += [
        f"{tensor.file.name}: {key!r} is stored as {tensor.dtype}, expected one of {', '.join(DTYPES)}"
        for key, tensor in tensors.items()
        if tensor.dtype not in DTYPES
    ]
    if problems:
        more = f"\n... and {len(problems) - 10} more" if len(problems) > 10 else ""
        raise CheckpointError(
            f"The weights of {files.source!r} do not fit its config.json:\n"
            + "\n".join(problems[:10])
            + f"{more}\nDownload the checkpoint again, or correct config.json."
        )


def _header(path: Path) -> dict[str, StoredTensor]:
    try:
        with safe_open(path, framework="pt") as opened:
            return {key: _describe(path, opened.get_slice(key)) for key in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no complete safetensors file ({error}). It is damaged or truncated; download it "
            "again."
        ) from error


def _describe(path: Path, view: Any) -> StoredTensor:
    return StoredTensor(path, tuple(view.get_shape()), view.get_dtype())
