"""The sizes that are measured: small ones for a CPU, true ones for a GPU, tiny ones for tests."""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Size:
    """Sizes of a model.

    Attributes:
        family: `config.model_type`.
        text: Overrides of the text config.
        vision: Overrides of the vision config.
        tile: Side of a tile in pixels; Qwen's images have the area of as many tiles.
        dtype: Of the weights.
        whole: Overrides of the config itself.
        merged: Side in pixels of what becomes one image token.
    """

    family: str
    text: dict[str, Any]
    vision: dict[str, Any]
    tile: int
    dtype: torch.dtype = torch.float32
    whole: dict[str, Any] = field(default_factory=dict)
    merged: int = 28


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


def _qwen_vision(width: int, inner: int, layers: int, heads: int, out: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": width, "intermediate_size": inner, "depth": layers, "num_heads": heads}
    return {**sizes, "out_hidden_size": out, **more}


def _rope(section: list[int], theta: float = 1e4, **more: Any) -> dict[str, Any]:
    parameters = {"rope_type": "default", "rope_theta": theta, "mrope_section": section, **more}
    return {"rope_parameters": parameters}


def _hybrid(layers: int) -> list[str]:
    """Three layers with a recurrent state before each that attends."""
    return [("linear_attention", "full_attention")[number % 4 == 3] for number in range(layers)]


def _tiny(family: str, vision: dict[str, Any], **more: Any) -> Size:
    """As the true models here, with more words than the small tokenizer knows."""
    text = _text(64, 128, 2, 4, 2, vocab_size=1024) | more.pop("text", {})
    return Size(family, text, vision, 56, **more)


_SMALL = _text(512, 1536, 6, 8, 4)
SIZES = {
    # Decoders of 19M parameters: large enough that Python is not what is measured.
    "internvl": Size("internvl", _SMALL, _internvl_vision(192, 4, 3, 224), 224),
    "internvl-448": Size("internvl", _SMALL, _internvl_vision(192, 4, 3, 448), 448),
    "qwen2_5_vl": Size("qwen2_5_vl", _SMALL | _rope([8, 12, 12]), _qwen_vision(192, 512, 4, 3, 512), 224),
    # As the model of the brands demo: SmolLM2-135M and DINOv2-S, 16 tokens an image.
    "brands": Size(
        "internvl",
        _text(576, 1536, 30, 9, 3, vocab_size=49154),
        _internvl_vision(384, 12, 6, 112),
        112,
        whole={"tie_word_embeddings": True},
    ),
    # As InternVL3-1B, InternVL2.5-8B, Qwen2.5-VL-3B and a Qwen3.5 of 4B, for a GPU.
    "internvl-1b": Size(
        "internvl",
        _text(896, 4864, 24, 14, 2, vocab_size=151674),
        _internvl_vision(1024, 24, 16, 448),
        448,
        torch.bfloat16,
    ),
    "internvl-8b": Size(
        "internvl",
        _text(4096, 14336, 32, 32, 8, vocab_size=92553, head_dim=128),
        _internvl_vision(1024, 24, 16, 448),
        448,
        torch.bfloat16,
    ),
    "qwen2_5_vl-3b": Size(
        "qwen2_5_vl",
        _text(2048, 11008, 36, 16, 2, vocab_size=151936) | _rope([16, 24, 24], 1e6),
        _qwen_vision(1280, 3420, 32, 16, 2048, window_size=112, fullatt_block_indexes=[7, 15, 23, 31]),
        448,
        torch.bfloat16,
        {"tie_word_embeddings": True},
    ),
    "qwen3_5-4b": Size(
        "qwen3_5",
        _text(2560, 9216, 32, 16, 4, vocab_size=248320, head_dim=256)
        | _rope([11, 11, 10], 1e7, mrope_interleaved=True, partial_rotary_factor=0.25)
        | {"layer_types": _hybrid(32), "linear_num_key_heads": 16, "linear_num_value_heads": 32}
        | {"linear_key_head_dim": 128, "linear_value_head_dim": 128},
        _qwen_vision(1024, 4096, 24, 16, 2560, num_position_embeddings=2304),
        448,
        torch.bfloat16,
        {"tie_word_embeddings": True},
        merged=32,
    ),
    # For `benchmarks.scale`: cheap enough for 64 completions, 40 tiles or 30 images on one core.
    "scale": Size("internvl", _text(128, 384, 3, 4, 2), _internvl_vision(64, 2, 2, 112), 112),
    # As the GPU's, for the tests of its command.
    "tiny-internvl": _tiny("internvl", _internvl_vision(32, 2, 2, 56)),
    "tiny-qwen2_5_vl": _tiny("qwen2_5_vl", {}, whole={"tie_word_embeddings": True}),
    "tiny-qwen3_5": _tiny("qwen3_5", {}, text={"layer_types": _hybrid(4), "num_hidden_layers": 4}, merged=32),
}
