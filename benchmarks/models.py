"""Stock models of random weights at the sizes that are measured, and rows that fill them."""

import copy
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from peft import PeftModel, get_peft_model
from PIL import Image
from transformers import AutoModelForImageTextToText

from hf_vlm_rl import AutoVLMPolicy
from tests.tiny import recipe

from .sizes import SIZES, Size

# InternVL's tiles of an image (a thumbnail among them) to its width and height in tiles.
TILING = {1: (1, 1), 3: (2, 1), 5: (2, 2), 7: (3, 2), 10: (3, 3), 13: (4, 3), 21: (5, 4), 40: (13, 3)}


def _stretch(config: Any, processor: Any, size: Size, tiles: int) -> None:
    parts = ((config, size.whole), (config.text_config, size.text), (config.vision_config, size.vision))
    for part, values in parts:
        for name, value in values.items():
            setattr(part, name, value)
    config.text_config.max_position_embeddings = 32768
    images = processor.image_processor
    if size.family == "internvl":
        images.size = {"height": size.tile, "width": size.tile}
        images.max_patches = max(tiles - 1, 1)
        processor.image_seq_length = config.image_seq_length = (size.tile // 28) ** 2
    else:
        images.size = {"shortest_edge": size.merged**2, "longest_edge": size.tile**2 * max(16, tiles)}


def sized(size: Size, tiles: int) -> tuple[Any, Any]:
    """The config of a size and its native processor, for images of at most so many tiles."""
    made = recipe(size.family)
    _stretch(made.config, made.processor, size, tiles)
    return made.config, made.processor


def stock(
    name: str, tiles: int, device: str, attention: str | None = None, vocabulary: int | None = None
) -> tuple[Any, Any]:
    """A stock model of random weights on a device, and its native processor.

    Args:
        name: One of `SIZES`.
        tiles: Most tiles of an image.
        device: Where the weights are drawn.
        attention: Attention kernel, transformers' own choice if None.
        vocabulary: Words that the model can say; None: those of its tiny tokenizer.
    """
    size = SIZES[name]
    config, processor = sized(size, tiles)
    config.text_config.vocab_size = vocabulary or config.text_config.vocab_size
    chosen = {} if attention is None else {"attn_implementation": attention}
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(config, dtype=size.dtype, **chosen)
    processor.tokenizer.padding_side = "left"
    return model, processor


def policy_of(model: Any, processor: Any, same_weights: bool = False) -> Any:
    """A policy with the weights of a stock model.

    Args:
        model: The stock model, which stays as it is.
        processor: Its native processor, which stays as it is.
        same_weights: The policy has the very parameters, so that a large model is held once.
    """
    memo = {id(weight): weight for weight in model.parameters()} if same_weights else {}
    return AutoVLMPolicy.from_model(copy.deepcopy(model, memo), copy.deepcopy(processor))


def pair(
    name: str,
    tiles: int,
    train_vision: bool,
    device: str,
    same_weights: bool = False,
    vocabulary: int | None = None,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """The same weights and LoRA adapter twice: (model, processing class) of stock and of the policy.

    Args:
        name: One of `SIZES`.
        tiles: Most tiles of an image.
        train_vision: Whether the vision tower is trained as well, as a whole.
        device: Of the weights.
        same_weights: See `policy_of`; for a frozen tower only.
        vocabulary: See `stock`.
    """
    model, processor = stock(name, tiles, device, vocabulary=vocabulary)
    policy = policy_of(model, processor, same_weights)
    config = policy.lora_config(r=16, init_lora_weights=False)
    tower = policy.family.vision[0]
    adapted = [_adapt(each, config, tower if train_vision else None) for each in (model, policy)]
    return (adapted[0], processor), (adapted[1], policy.processing_class)


def _adapt(model: Any, config: Any, tower: str | None) -> PeftModel:
    torch.manual_seed(0)
    adapted = get_peft_model(model, config)
    if tower is not None:
        adapted.get_base_model().get_submodule(tower).requires_grad_(True)
    return adapted


@lru_cache(maxsize=64)
def picture(size: tuple[int, int], number: int = 0) -> Image.Image:
    """An RGB image of smooth colours and some noise, another one for each number."""
    draws = np.random.default_rng(number)
    coarse = Image.fromarray(draws.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC), dtype=np.int16)
    noise = draws.integers(-12, 13, smooth.shape, dtype=np.int16)
    return Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8))


def image(name: str, tiles: int, number: int = 0) -> list[Any]:
    """The images of a row: one that fills `tiles` tiles, or none."""
    side = SIZES[name].tile
    if tiles == 0:
        return []
    # Qwen cuts no tiles: an image of as many tiles' area.
    width, height = TILING[tiles] if SIZES[name].family == "internvl" else (1, tiles)
    return [picture((width * side, height * side), number)]
