"""Tiny random checkpoints of the vision-language families, written without a network.

``build(family, directory)`` leaves a directory that the plain Auto classes load: the family's
stock ``...ForConditionalGeneration`` in float32, its generation config and its native processor.
"""

from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, GenerationConfig

from .families import FAMILIES, Recipe, recipe
from .weights import randomise

__all__ = ["FAMILIES", "Recipe", "build", "recipe"]


def build(family: str, directory: Path, seed: int = 0) -> Path:
    """Write a random checkpoint of ``family``, a ``config.model_type``, to ``directory``."""
    directory = Path(directory)
    made = recipe(family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(made.config, dtype=torch.float32)
    randomise(model, seed)
    tokenizer = made.processor.tokenizer
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=made.stop_ids[0] if len(made.stop_ids) == 1 else list(made.stop_ids),
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(directory)
    made.processor.save_pretrained(directory)
    return directory
