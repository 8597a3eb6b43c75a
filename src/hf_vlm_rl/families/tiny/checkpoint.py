"""A recipe becomes a directory with a model of random weights and its processor."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
    GenerationConfig,
    PreTrainedConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from .recipes import Recipe, recipe
from .weights import randomise


def auto_class(config: PreTrainedConfig) -> Any:
    """The Auto class that loads models of `config`: image-text-to-text, or multimodal where it has none."""
    mapped = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return AutoModelForImageTextToText if mapped else AutoModelForMultimodalLM


def write_checkpoint(model_type: str, directory: str | Path, seed: int = 0) -> Path:
    """Write a random checkpoint of less than a million parameters, and give its directory.

    The directory is made; files of the same names in it are replaced. `model_type` is one of `FAMILIES`.
    """
    return write_recipe(recipe(model_type), directory, seed)


def write_recipe(recipe: Recipe, directory: str | Path, seed: int = 0) -> Path:
    """Write a random checkpoint of any recipe; see `write_checkpoint`."""
    directory = Path(directory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto_class(recipe.config).from_config(recipe.config, dtype=torch.float32)
    randomise(model, seed)
    tokenizer = recipe.processor.tokenizer
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=recipe.stop_ids[0] if len(recipe.stop_ids) == 1 else list(recipe.stop_ids),
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(directory, save_original_format=recipe.original_format)
    recipe.processor.save_pretrained(directory)
    return directory
