"""Picks, out of a decoder's arguments for a batch, what belongs to some of its tokens."""

from typing import Any

import torch

from ..arguments import ARGUMENTS, FEATURES, Argument
from ..report import Refused


def take_tokens(shape: tuple[int, int], source: torch.Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The decoder's arguments, without masks, for some tokens of a batch of shape (B, T).

    `source` has (R, L) indices of the tokens in the flattened batch.

    Raises:
        Refused: If the table does not say how the tokens' part of a tensor is picked.
    """
    chosen = {}
    for name, value in kwargs.items():
        argument = ARGUMENTS.get(name, Argument())
        if value is None or argument.decoder == "whole":
            continue
        if argument.decoder == "positions":
            # (B, T), or (3 or 4, B, T) for multimodal positions, with 1 for B where all rows have the same.
            chosen[name] = value.expand(*value.shape[:-2], *shape).flatten(-2, -1)[..., source]
        elif argument.decoder == "tokens":
            chosen[name] = _of_tokens(shape, value, source)
        elif argument.features is not None and kwargs.get(argument.features) is not None:
            chosen |= _image_features(shape, kwargs, name, source)
        elif isinstance(value, torch.Tensor) and name not in FEATURES:
            raise Refused(f"the decoder takes {name} for each token", lasting=True)
    return kwargs | chosen


def _of_tokens(shape: tuple[int, int], tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """(B, T, ...) to (R, L, ...)."""
    flat = tensor.expand(*shape, *tensor.shape[2:]).flatten(0, 1)
    return flat.index_select(0, source.flatten()).unflatten(0, source.shape)


def _image_features(
    shape: tuple[int, int], kwargs: dict[str, Any], name: str, source: torch.Tensor
) -> dict[str, Any]:
    """The tokens' part of a mask of image tokens, and the features that the decoder adds at these tokens."""
    tokens = kwargs[name].flatten(0, 1)
    images = _of_tokens(shape, kwargs[name], source)
    chosen_mask = images.flatten(0, 1)
    if tokens.ndim == 2:  # the mask was (B, T, H), with one value along H
        tokens, chosen_mask = tokens[:, 0], chosen_mask[:, 0]
    indices = (tokens.cumsum(0) - 1).index_select(0, source.flatten())[chosen_mask]
    features = str(ARGUMENTS[name].features)
    layers = kwargs[features]
    if isinstance(layers, dict):
        chosen = {number: layer.index_select(0, indices) for number, layer in layers.items()}
        return {name: images, features: chosen}
    return {name: images, features: [layer.index_select(0, indices) for layer in layers]}
