"""GLM's classes: packed patches between words of GLM's own."""

from typing import Any

from .outline import Outline
from .qwen_like import SECTIONS

_WORDS = {
    "image": "<|image|>",
    "video": "<|video|>",
    "image_start": "<|begin_of_image|>",
    "image_end": "<|end_of_image|>",
    "video_start": "<|begin_of_video|>",
    "video_end": "<|end_of_video|>",
}
_VIDEO = "<|begin_of_video|><|video|><|end_of_video|>"
_BLOCK = "<|begin_of_image|><|image|><|end_of_image|>"
_ROPE = SECTIONS | {"partial_rotary_factor": 1.0}
_VISION = {
    "out_hidden_size": 64,
    "image_size": 112,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def _glm(**classes: Any) -> Outline:
    config = {"text_config": {"rope_parameters": _ROPE}, "vision_config": _VISION}
    return Outline(_WORDS, image=_BLOCK, video=_VIDEO, config=config, **classes)


OUTLINES: dict[str, Outline] = {
    "glm4v": _glm(),
    "glm46v": _glm(),
    "glm4v_moe": _glm(image_processor="Glm4vImageProcessor", video_processor="Glm4vVideoProcessor"),
    "glm_ocr": _glm(
        processor="Glm46VProcessor",
        image_processor="Glm46VImageProcessor",
        video_processor="Glm46VVideoProcessor",
    ),
    "glmga": _glm(processor="Glm46VProcessor"),
    "glm5_next": Outline(
        _WORDS,
        image=_BLOCK,
        video=_VIDEO,
        config={
            "text_config": {
                "num_key_value_heads": 4,
                "qk_rope_head_dim": 0,
                "head_dim": 0,
                "qk_head_dim": 16,
                "index_n_heads": 2,
                "index_head_dim": 16,
                "linear_head_dim": 16,
                "linear_num_heads": 4,
                "hc_mult": 2,
                "mlp_layer_types": ["dense", "sparse"],
                "indexer_types": ["full", "full"],
            },
            "vision_config": {"out_hidden_size": 64, "projection_intermediate_size": 64, "image_size": 112},
        },
    ),
}
