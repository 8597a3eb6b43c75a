"""The first version of the original pixel shuffle (`ps_version: v1`)."""

from typing import Any

import torch
from torch import nn


def transpose_tiles(model: Any) -> None:
    """Make an InternVL model give the features of each tile column by column, in place.

    `v1` left out the last transposition that `v2` and transformers do. The projector works on each
    feature alone, so transposing its output is the same.

    Args:
        model: A stock `InternVLForConditionalGeneration`.
    """
    model.model.multi_modal_projector.register_forward_hook(_transpose)


def _transpose(module: nn.Module, inputs: Any, features: torch.Tensor) -> torch.Tensor:
    """(tiles, side * side, hidden), row by row -> the same, column by column."""
    side = int(features.shape[1] ** 0.5)
    return features.unflatten(1, (side, side)).transpose(1, 2).flatten(1, 2)
