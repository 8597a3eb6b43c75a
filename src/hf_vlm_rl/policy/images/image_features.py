"""Image features: splits a tower's output by image, and joins the features of several images again.

Shapes: N images, H the decoder's hidden size.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from transformers.utils import ModelOutput

from ...families.derive_parts import names_in

POOLED, DEEP = "pooler_output", "deepstack_features"
_INNER = frozenset({"last_hidden_state", "hidden_states", "attentions"})

# A tensor, or tensors by image or layer; layers may come with their number.
Field = Any


@dataclass(frozen=True)
class Features:
    """One image's features.

    Attributes:
        fields: Those of the output of `get_image_features` for this image alone, by name: a tensor, or a
            tuple of tensors. `deepstack_features` has one of these for each of its layers.
    """

    fields: Mapping[str, Field]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors())

    def tensors(self) -> Iterator[torch.Tensor]:
        """All tensors of the features."""
        return tensors_in(self.fields)

    def clone(self) -> Self:
        """A copy that shares no memory."""
        return type(self)({name: _map(torch.Tensor.clone, value) for name, value in self.fields.items()})


def fields_read(kind: type) -> frozenset[str]:
    """Which fields of ready features a backbone may read: those that its forward names."""
    return frozenset(names_in(kind, "forward"))


def features_of_each(
    output: ModelOutput, read: Collection[str], tokens: Sequence[int], images: int
) -> list[Features] | None:
    """The features of each of N images, from the output of `get_image_features`, which has those of all.

    `read` has the fields that the backbone reads (`fields_read`), `tokens` those of each image. None if the
    output does not tell where an image ends.
    """
    fields = _fields(output, read)
    if images == 1:
        return [Features({name: _frozen(value) for name, value in fields.items()})]
    if not fields.keys() <= {POOLED, DEEP} or fields.get(POOLED) is None:
        return None
    pooled = fields[POOLED]
    if isinstance(pooled, torch.Tensor):
        # (pieces, tokens a piece, H): an image has one piece or several (tiles, crops).
        if pooled.ndim != 3:
            return None
        pieces = [count // pooled.shape[1] for count in tokens]
        if sum(pieces) != len(pooled):
            return None
        pooled = pooled.split(pieces)
    else:
        pooled = [(piece,) for piece in pooled]
    layers = fields.get(DEEP)
    if len(pooled) != images or any(
        isinstance(layer, torch.Tensor) or len(layer) != images for layer in layers or ()
    ):
        return None
    fields_of_images = [{POOLED: piece} for piece in pooled]
    if layers is not None:
        for number, image in enumerate(fields_of_images):
            image[DEEP] = tuple((layer[number],) for layer in layers)
    return [Features(image) for image in fields_of_images]


def joined(features: Sequence[Features]) -> ModelOutput:
    """The features of all images, as the stock backbone reads them from `mm_encoder_outputs["image"]`."""
    output = _ImageFeatures()
    for name in features[0].fields:
        values = [image.fields[name] for image in features]
        by_layer = [_join(layer) for layer in zip(*values, strict=True)] if name == DEEP else None
        setattr(output, name, _join(values) if by_layer is None else by_layer)
    return output


@dataclass
class _ImageFeatures(ModelOutput):
    """The fields that most models have; others are set by their names."""

    pooler_output: torch.Tensor | list[torch.Tensor] | None = None
    deepstack_features: list | None = None


def _fields(output: ModelOutput, read: Collection[str]) -> dict[str, Field]:
    """The fields of an output that a backbone reads."""
    # Outputs of several models carry further tensors as plain attributes.
    fields = {name: value for name, value in vars(output).items() if name in read}
    ready = fields.get(POOLED) is not None or fields.get(DEEP) is not None
    # A forward names fields like the tower's inner states, too, because its own output has them.
    skipped = _INNER if ready else _INNER - {"last_hidden_state"}
    # A backbone reads other fields as attributes, which must exist even if they are None.
    usual = (POOLED, DEEP)
    return {
        name: value
        for name, value in fields.items()
        if name not in skipped and (value is not None or name not in usual)
    }


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and mappings, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def _frozen(value: Field) -> Field:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _map(change: Callable[[torch.Tensor], torch.Tensor], value: Field) -> Field:
    if isinstance(value, tuple):
        return tuple(_map(change, item) for item in value)
    return change(value) if isinstance(value, torch.Tensor) else value


def _join(values: Sequence[Field]) -> Field:
    """One field for all images: tensors are concatenated, and so are lists of tensors."""
    first = values[0]
    if first is None:
        return None
    if isinstance(first, torch.Tensor):
        rows = all(value.ndim == 3 and len(value) == 1 for value in values)
        if rows and any(value.shape[1:] != first.shape[1:] for value in values):
            # Videos of different lengths, (1, tokens, H) each: models read them as one row of tokens.
            return torch.cat([value.flatten(0, 1) for value in values])[None]
        return torch.cat(list(values))
    if all(isinstance(item, torch.Tensor) for item in first):
        return [item for value in values for item in value]
    # Each value is a pair: a layer's number and its features.
    return tuple(
        _join(item) if not isinstance(item[0], int) else item[0] for item in zip(*values, strict=True)
    )
