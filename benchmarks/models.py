"""Stock models of random weights at the sizes that are measured, and rows that fill them."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from transformers import AutoModelForImageTextToText

from hf_vlm_rl import AutoVLMPolicy
from tests.images import photo
from tests.tiny import recipe

# InternVL's tiles of an image (a thumbnail among them) to its width and height in tiles.
TILING = {1: (1, 1), 7: (3, 2), 13: (4, 3)}


@dataclass(frozen=True)
class Size:
    """Sizes of a model.

    Attributes:
        family: `config.model_type`.
        text: Overrides of the text config.
        vision: Overrides of the vision config.
        tile: Side of a tile in pixels; Qwen's images have the area of as many tiles.
        dtype: Of the weights.
    """

    family: str
    text: dict[str, Any]
    vision: dict[str, Any]
    tile: int
    dtype: torch.dtype = torch.float32


def _text(width: int, inner: int, layers: int, heads: int, key_heads: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "layer_types": ["full_attention"] * layers,
        **more,
    }


def _internvl_vision(width: int, layers: int, heads: int, tile: int) -> dict[str, Any]:
    sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers}
    return {**sizes, "num_attention_heads": heads, "image_size": [tile, tile]}


def _qwen_vision(width: int, inner: int, layers: int, heads: int, out: int) -> dict[str, Any]:
    sizes = {"hidden_size": width, "intermediate_size": inner, "depth": layers, "num_heads": heads}
    return {**sizes, "out_hidden_size": out}


_SMALL = _text(512, 1536, 6, 8, 4)
SIZES = {
    # Decoders of 19M parameters: large enough that Python is not what is measured.
    "internvl": Size("internvl", _SMALL, _internvl_vision(192, 4, 3, 224), 224),
    "internvl-448": Size("internvl", _SMALL, _internvl_vision(192, 4, 3, 448), 448),
    "qwen2_5_vl": Size(
        "qwen2_5_vl",
        _SMALL
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12]}},
        _qwen_vision(192, 512, 4, 3, 512),
        224,
    ),
    # As InternVL2.5-8B and Qwen2.5-VL-3B, for a GPU.
    "internvl-8b": Size(
        "internvl",
        _text(4096, 14336, 32, 32, 8, vocab_size=92553, head_dim=128),
        _internvl_vision(1024, 24, 16, 448),
        448,
        torch.bfloat16,
    ),
    "qwen2_5_vl-3b": Size(
        "qwen2_5_vl",
        _text(2048, 11008, 36, 16, 2, vocab_size=151936)
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}},
        _qwen_vision(1280, 3420, 32, 16, 2048),
        448,
        torch.bfloat16,
    ),
}


def _stretch(config: Any, processor: Any, size: Size, tiles: int) -> None:
    for part, values in ((config.text_config, size.text), (config.vision_config, size.vision)):
        for name, value in values.items():
            setattr(part, name, value)
    config.text_config.max_position_embeddings = 32768
    images = processor.image_processor
    if size.family == "internvl":
        images.size = {"height": size.tile, "width": size.tile}
        images.max_patches = max(tiles - 1, 1)
        processor.image_seq_length = config.image_seq_length = (size.tile // 28) ** 2
    else:
        images.size = {"shortest_edge": 28 * 28, "longest_edge": size.tile**2 * 16}


def pair(name: str, tiles: int, train_vision: bool, device: str) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """The same weights and LoRA adapter twice: (model, processing class) of stock and of the policy."""
    size = SIZES[name]
    made = recipe(size.family)
    _stretch(made.config, made.processor, size, tiles)
    torch.manual_seed(0)
    with torch.device(device):
        stock = AutoModelForImageTextToText.from_config(made.config, dtype=size.dtype)
    stock_processor = copy.deepcopy(made.processor)
    stock_processor.tokenizer.padding_side = "left"
    policy = AutoVLMPolicy.from_model(copy.deepcopy(stock), made.processor)
    config = policy.lora_config(r=16, init_lora_weights=False)
    tower = policy.family.vision[0]
    adapted = [_adapt(model, config, tower if train_vision else None) for model in (stock, policy)]
    return (adapted[0], stock_processor), (adapted[1], policy.processing_class)


def _adapt(model: Any, config: Any, tower: str | None) -> PeftModel:
    torch.manual_seed(0)
    adapted = get_peft_model(model, config)
    if tower is not None:
        adapted.get_base_model().get_submodule(tower).requires_grad_(True)
    return adapted


def image(name: str, tiles: int) -> list[Any]:
    """The images of a row: one that fills `tiles` tiles, or none."""
    side = SIZES[name].tile
    if tiles == 0:
        return []
    # Qwen cuts no tiles: an image of as many tiles' area.
    width, height = TILING[tiles] if SIZES[name].family == "internvl" else (1, tiles)
    return [photo("coffee", (width * side, height * side))]
