"""What tensors a checkpoint stores, read from the headers of its safetensors files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from ..errors import CheckpointError
from .files import Files, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

# Follows from the config; some exports store it nevertheless.
DERIVED = ".rotary_emb.inv_freq"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint.

    Attributes:
        file: The safetensors file that holds it.
        key: Its name there.
        shape: Its shape.
        dtype: Its dtype, as safetensors writes it ("BF16").
    """

    file: Path
    key: str
    shape: tuple[int, ...]
    dtype: str

    def read(self) -> torch.Tensor:
        """The tensor, on the CPU."""
        with safe_open(self.file, framework="pt") as opened:
            return opened.get_tensor(self.key)


def stored_tensors(files: Files) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint by name, without reading their values.

    Raises:
        CheckpointError: If a file is missing or damaged, or lacks a tensor that the index has in it.
    """
    single = files.find(SINGLE)
    if single is not None:
        return _header(single)
    index = files.path(INDEX)
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{index} has no weight_map. It is damaged; download it again.")
    tensors: dict[str, StoredTensor] = {}
    for name in sorted(set(places.values())):
        shard = files.find(name)
        if shard is None:
            first = next(key for key, place in places.items() if place == name)
            raise CheckpointError(
                f"The shard {name} of {files.source!r} is missing; {index.name} has {first!r} and "
                f"{sum(place == name for place in places.values()) - 1} other tensors in it. Download it again."
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
    """Hold what is stored against what the config asks for.

    Args:
        tensors: From `stored_tensors`.
        expected: Shapes by original name.
        files: The checkpoint, for messages.

    Raises:
        CheckpointError: If a tensor is missing, unexpected or of another shape.
    """
    problems = [
        f"{tensor.file.name}: {key!r} has shape {list(tensor.shape)}, expected {list(expected[key])}"
        for key, tensor in tensors.items()
        if key in expected and tensor.shape != tuple(expected[key])
    ]
    where = f"{SINGLE} or a shard" if len({tensor.file for tensor in tensors.values()}) > 1 else SINGLE
    problems += [f"{where}: {key!r} is missing" for key in expected if key not in tensors]
    problems += [
        f"{tensor.file.name}: {key!r} is not part of this model"
        for key, tensor in tensors.items()
        if key not in expected and not key.endswith(DERIVED)
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
            return {key: _describe(path, key, opened.get_slice(key)) for key in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no complete safetensors file ({error}). It is damaged or truncated; download it again."
        ) from error


def _describe(path: Path, key: str, view: object) -> StoredTensor:
    return StoredTensor(path, key, tuple(view.get_shape()), view.get_dtype())
