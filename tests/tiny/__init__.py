"""Tiny random checkpoints of vision-language models, written without a network.

``build(model_type, directory)`` leaves a directory that the plain Auto classes load: the stock model
in float32, its generation config and its native processor. ``FAMILIES`` are the twelve whose recipes
are written by hand, in the style of their originals; ``EVERY`` are all that can be built.
"""

from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, AutoModelForMultimodalLM, GenerationConfig

from .families import EVERY, FAMILIES, Recipe, recipe
from .weights import randomise

# Newer classes whose trainers run on every TRL lane: experts, hybrids, their own positions and masks.
NEWER = (
    "qwen3_5_moe",
    "qwen3_vl_moe",
    "gemma4",
    "glm4v_moe",
    "kimi_k25",
    "llama4",
    "lfm2_vl",
    "minicpmv4_7",
    "molmo2",
    "ernie4_5_vl_moe",
)

__all__ = ["EVERY", "FAMILIES", "NEWER", "Recipe", "auto_class", "build", "recipe"]


def auto_class(config) -> type:
    """The Auto class that loads models of ``config``: image-text-to-text, or multimodal where it has none."""
    mapped = type(config) in AutoModelForImageTextToText._model_mapping
    return AutoModelForImageTextToText if mapped else AutoModelForMultimodalLM


def build(model_type: str, directory: Path, seed: int = 0) -> Path:
    """Write a random checkpoint of ``model_type``, a ``config.model_type``, to ``directory``."""
    directory = Path(directory)
    made = recipe(model_type)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto_class(made.config).from_config(made.config, dtype=torch.float32)
    randomise(model, seed)
    tokenizer = made.processor.tokenizer
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=made.stop_ids[0] if len(made.stop_ids) == 1 else list(made.stop_ids),
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(directory, save_original_format=made.original_format)
    made.processor.save_pretrained(directory)
    return directory
