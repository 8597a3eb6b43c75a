"""Checkpoints of models whose weights have changed, and what is compared with these."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def saved_with_other_weights(
    auto_class: Any, checkpoint: Path, folder: Path
) -> tuple[Any, dict[str, torch.Tensor]]:
    """Load a model and change its weights; save it and its processing class.

    Returns:
        The model, and the weights by their names in the file.
    """
    model = auto_class.from_pretrained(checkpoint, dtype="float32")
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.5)
    model.save_pretrained(folder)
    model.processing_class.save_pretrained(folder)
    return model, load_file(folder / "model.safetensors")


def assert_same_weights(found: torch.nn.Module, expected: torch.nn.Module) -> None:
    weights = dict(expected.named_parameters())
    assert all(torch.equal(weight, weights[name]) for name, weight in found.named_parameters())
