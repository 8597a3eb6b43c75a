"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: packed patches, and rotary positions in three parts."""

from typing import Any

from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLProcessor,
    Qwen2Tokenizer,
    Qwen2VLConfig,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from . import templates
from .parts import CHATML, Recipe, ids, text_config
from .tokens import qwen_tokenizer

_VISION = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
_TEMPORAL = {"spatial_merge_size": 2, "temporal_patch_size": 2}


def _tokenizer() -> Qwen2Tokenizer:
    return qwen_tokenizer(
        (*CHATML, *_VISION),
        {},
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )


def _marks(tokenizer: Qwen2Tokenizer) -> dict[str, Any]:
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    words = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    return dict(zip(names, ids(tokenizer, *words), strict=True))


def _size(patch: int, frames: int = 1) -> dict[str, int]:
    """Between 16 and 36 merged patches an image, or each of some frames."""
    area = frames * (2 * patch) ** 2
    return {"shortest_edge": 16 * area, "longest_edge": 36 * area}


def _rope(section: list[int], **kwargs: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": section, **kwargs}


def _stops(tokenizer: Qwen2Tokenizer) -> tuple[int, ...]:
    return ids(tokenizer, "<|im_end|>", "<|endoftext|>")


def _processor(kind: Any, tokenizer: Qwen2Tokenizer) -> Any:
    images, videos = Qwen2VLImageProcessor(size=_size(14)), Qwen2VLVideoProcessor(size=_size(14))
    return kind(images, tokenizer, videos, chat_template=templates.QWEN2_VL)


def qwen2_vl() -> Recipe:
    """Qwen2-VL: images in their own proportions."""
    tokenizer = _tokenizer()
    processor = _processor(Qwen2VLProcessor, tokenizer)
    config = Qwen2VLConfig(
        text_config=text_config(tokenizer, rope_parameters=_rope([2, 3, 3])),
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 64,
            "num_heads": 2,
            "patch_size": 14,
            **_TEMPORAL,
        },
        **_marks(tokenizer),
    )
    return Recipe(config, processor, _stops(tokenizer))


def qwen2_5_vl() -> Recipe:
    """Qwen2.5-VL: windows in the tower, and one layer that sees everything."""
    tokenizer = _tokenizer()
    processor = _processor(Qwen2_5_VLProcessor, tokenizer)
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "out_hidden_size": 64,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 14,
        "window_size": 56,
        "fullatt_block_indexes": [1],
    }
    config = Qwen2_5_VLConfig(
        text_config=text_config(tokenizer, rope_parameters=_rope([2, 3, 3])),
        vision_config={**vision, **_TEMPORAL},
        **_marks(tokenizer),
    )
    return Recipe(config, processor, _stops(tokenizer))


def qwen3_vl() -> Recipe:
    """Qwen3-VL: features of the tower's layers also go into the decoder's first ones."""
    tokenizer = _tokenizer()
    half: dict[str, Any] = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(size=_size(16), patch_size=16, **half),
        tokenizer,
        Qwen3VLVideoProcessor(size=_size(16, frames=4), patch_size=16),
        chat_template=templates.QWEN3_VL,
    )
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "out_hidden_size": 64,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 16,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1],
    }
    rope = _rope([4, 2, 2], mrope_interleaved=True)
    config = Qwen3VLConfig(
        # A layer more than the tower's features are added behind: one that reads the last of them.
        text_config=text_config(tokenizer, num_hidden_layers=3, head_dim=16, rope_parameters=rope),
        vision_config={**vision, **_TEMPORAL},
        tie_word_embeddings=True,
        **_marks(tokenizer),
    )
    return Recipe(config, processor, _stops(tokenizer))
