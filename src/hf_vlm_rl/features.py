"""Image features: the vision tower and projector run once per distinct image of a forward.

Nothing here knows a family's tensor layout. Images whose tensors agree in every dimension but the
first go through the tower together; the result is cut by what each image put in.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.utils import ModelOutput

from .image_cache import ProcessedImage


@dataclass(frozen=True)
class _Features:
    """One image's features: `pooled` as the model returns it, `deep` per extra decoder layer."""

    pooled: torch.Tensor
    deep: tuple[torch.Tensor, ...]


def encode_images(backbone: Any, processing: Any, tickets: Sequence[int]) -> ModelOutput:
    """Features of `tickets` as the stock backbone expects them in `mm_encoder_outputs["image"]`.

    Args:
        backbone: The multimodal backbone, on its device.
        processing: Its processing class.
        tickets: N tickets, repeats allowed; each distinct one is encoded once.

    Returns:
        An output of the class that `get_image_features` returns, with the features of the N images
        in order: one tensor where the family has equal-sized pieces, else a list of N tensors.
    """
    distinct = list(dict.fromkeys(tickets))
    images = {ticket: processing.processed(ticket) for ticket in distinct}
    features: dict[int, _Features] = {}
    for group in _batches(images):
        output = _forward(backbone, [images[ticket] for ticket in group])
        stacked = isinstance(output.pooler_output, torch.Tensor)
        features |= zip(group, _split(output, [images[ticket] for ticket in group]), strict=True)
    pooled = [features[ticket].pooled for ticket in tickets]
    result = type(output)(pooler_output=torch.cat(pooled) if stacked else pooled)
    if features[tickets[0]].deep:
        layers = zip(*(features[ticket].deep for ticket in tickets), strict=True)
        result.deepstack_features = [list(layer) for layer in layers]
    return result


def _batches(images: dict[int, ProcessedImage]) -> list[list[int]]:
    """Tickets grouped by the shapes of their tensors, first dimension aside."""
    groups: dict[tuple, list[int]] = {}
    for ticket, image in images.items():
        shapes = tuple(
            (key, tuple(value.shape[1:]))
            for key, value in sorted(image.inputs.items())
            if isinstance(value, torch.Tensor)
        )
        groups.setdefault(shapes, []).append(ticket)
    return list(groups.values())


def _forward(backbone: Any, images: list[ProcessedImage]) -> ModelOutput:
    accepted = inspect.signature(backbone.get_image_features).parameters
    inputs: dict[str, Any] = {}
    for key in images[0].inputs:
        if key not in accepted:
            continue
        values = [image.inputs[key] for image in images]
        if isinstance(values[0], torch.Tensor):
            value = torch.cat(values).to(backbone.device)
            inputs[key] = value.to(backbone.dtype) if value.is_floating_point() else value
        else:
            inputs[key] = [item for value in values for item in value]
    return backbone.get_image_features(**inputs, return_dict=True)


def _split(output: ModelOutput, images: list[ProcessedImage]) -> list[_Features]:
    pooled = output.pooler_output
    if isinstance(pooled, torch.Tensor):
        # (pieces, tokens a piece, H): an image has one piece or several (tiles, crops).
        pooled = pooled.split([image.tokens // pooled.shape[1] for image in images])
    layers = getattr(output, "deepstack_features", None) or []
    deep = zip(*layers, strict=True) if layers else [()] * len(images)
    return [_Features(*pair) for pair in zip(pooled, map(tuple, deep), strict=True)]
