"""Classes that pack patches into rows and describe them by grids, with Qwen's words for an image."""

from typing import Any

from .outline import Id, Outline

WORDS = {
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
}
BLOCK = "<|vision_start|><|image_pad|><|vision_end|>"

# Rotary positions in three parts, for heads of sixteen.
INTERLEAVED = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "mrope_section": [4, 2, 2],
    "mrope_interleaved": True,
    "partial_rotary_factor": 1.0,
}
SECTIONS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}

WINDOWED = {"out_hidden_size": 64, "fullatt_block_indexes": [1], "window_size": 56}
# Features of two layers of the tower are added behind as many layers of the decoder. A last layer reads them.
DEEP = {"num_hidden_layers": 3}
DEEPSTACK = {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 64, "patch_size": 16}
LINEAR_ATTENTION = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}


def pixels(patch: int) -> dict[str, Any]:
    """Between 16 and 36 merged patches an image."""
    area = (2 * patch) ** 2
    return {"size": {"shortest_edge": 16 * area, "longest_edge": 36 * area}, "patch_size": patch}


def _qwen3_5(**text: Any) -> Outline:
    return Outline(
        WORDS,
        image=BLOCK,
        image_options=pixels(16),
        config={
            "text_config": {"rope_parameters": INTERLEAVED, **LINEAR_ATTENTION, **text},
            "vision_config": {"patch_size": 16, "num_position_embeddings": 64},
        },
    )


def _omni(processor: str, patch: int, rope: dict[str, Any], vision: dict[str, Any], **audio: Any) -> Outline:
    return Outline(
        {
            **WORDS,
            "audio": "<|audio_pad|>",
            "audio_start": "<|audio_start|>",
            "audio_end": "<|audio_end|>",
            "vision_bos": "<|vision_start|>",
            "vision_eos": "<|vision_end|>",
            "audio_bos": "<|audio_start|>",
            "audio_eos": "<|audio_end|>",
        },
        image=BLOCK,
        processor=processor,
        image_processor="Qwen2VLImageProcessor",
        video_processor="Qwen2VLVideoProcessor",
        feature_extractor="WhisperFeatureExtractor",
        image_options=pixels(patch),
        config={
            # A plain word, which only the model that speaks looks for.
            "user_token_id": Id("er"),
            "vision_start_token_id": Id("<|vision_start|>"),
            "audio_start_token_id": Id("<|audio_start|>"),
            "text_config": {"rope_parameters": rope} | (DEEP if vision is DEEPSTACK else {}),
            "vision_config": {"out_hidden_size": 64, **vision},
            "audio_config": {"encoder_layers": 1, "output_dim": 64, **audio},
        },
    )


OUTLINES: dict[str, Outline] = {
    "qwen3_5": _qwen3_5(),
    "qwen3_5_moe": _qwen3_5(),
    "qwen4_exp": _qwen3_5(
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=64,
        indexer_compress_ratio=4,
        hc_count=2,
        hc_lowrank=8,
    ),
    "qwen3_vl_moe": Outline(
        WORDS,
        image=BLOCK,
        image_processor="Qwen2VLImageProcessor",
        image_options=pixels(16),
        config={
            "text_config": DEEP | {"rope_parameters": INTERLEAVED, "mlp_only_layers": []},
            "vision_config": DEEPSTACK,
        },
    ),
    "cosmos3_omni": Outline(
        WORDS,
        image=BLOCK,
        processor="Qwen3VLProcessor",
        image_options=pixels(16),
        config={"text_config": DEEP, "vision_config": DEEPSTACK},
    ),
    "cosmos3_edge": Outline(WORDS, image=BLOCK, image_options=pixels(16)),
    "cohere_compass": Outline(
        {
            "image": "<|IMAGE_PAD|>",
            "video": "<|VIDEO_PAD|>",
            "vision_start": "<|VISION_START|>",
            "vision_end": "<|VISION_END|>",
        },
        image="<|VISION_START|><|IMAGE_PAD|><|VISION_END|>",
        image_options=pixels(16),
        config={
            "text_config": {
                "logit_scale": 1.0,
                "num_hidden_layers": 3,
                "layer_types": ["sliding_attention", "full_attention", "full_attention"],
                "rope_parameters": {
                    "full_attention": SECTIONS | {"mrope_section": [4, 2, 2]},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            },
            "vision_config": DEEPSTACK | {"out_hidden_size": 64},
        },
    ),
    "exaone4_5": Outline(WORDS, image=BLOCK, image_options=pixels(14), config={"vision_config": WINDOWED}),
    "hyperclovax_vision_v2": Outline(
        WORDS, image=BLOCK, image_options=pixels(14), config={"vision_config": WINDOWED}
    ),
    "lfm3_vl": Outline(
        WORDS,
        image=BLOCK,
        image_options=pixels(16),
        config={
            "text_config": {"layer_types": ["conv", "full_attention"], "head_dim": 16},
            "vision_config": {"layer_types": ["conv", "full_attention"]},
        },
    ),
    "video_llama_3": Outline(
        WORDS,
        image=BLOCK,
        # Its patches are not merged.
        image_options={"size": {"shortest_edge": 16 * 14**2, "longest_edge": 64 * 14**2}},
        config={"vision_config": {"patch_size": 14}},
    ),
    "paddleocr_vl": Outline(
        WORDS
        | {
            "image": "<|IMAGE_PLACEHOLDER|>",
            "vision_start": "<|IMAGE_START|>",
            "vision_end": "<|IMAGE_END|>",
        },
        image="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        image_options=pixels(14),
        config={"text_config": {"rope_parameters": SECTIONS}},
    ),
    "ernie4_5_vl_moe": Outline(
        {
            "image": "<|IMAGE_PLACEHOLDER|>",
            "video": "<|VIDEO_PLACEHOLDER|>",
            "image_start": "<|IMAGE_START|>",
            "image_end": "<|IMAGE_END|>",
            "video_start": "<|VIDEO_START|>",
            "video_end": "<|VIDEO_END|>",
        },
        image="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        # It would load a font.
        video_options={"draw_on_frames": False},
        config={
            "text_config": {
                "moe_intermediate_size": [32, 16],
                "mlp_layer_types": ["dense", "sparse"],
                "rope_parameters": SECTIONS | {"mrope_section": [3, 3, 2]},
            }
        },
    ),
    "kimi_k25": Outline(
        {
            "image": "<|media_pad|>",
            "video": "<|kimi_k25_video_placeholder|>",
            "vision_start": "<|media_begin|>",
            "vision_end": "<|media_end|>",
        },
        more_words=("<|media_content|>",),
        image="<|media_begin|>image<|media_content|><|media_pad|><|media_end|>",
        config={
            "projection_hidden_size": 32,
            "text_config": {"first_k_dense_replace": 1, "num_key_value_heads": 4},
        },
    ),
    "minimax_m3_vl": Outline(
        {"image": "]<]image[>[", "video": "]<]video[>["},
        more_words=("]<]start of image[>[", "]<]end of image[>["),
        config={
            "projector_hidden_size": 64,
            "merged_hidden_size": 128,
            "text_config": {
                "layer_types": ["full_attention", "minimax_m3_sparse"],
                "mlp_layer_types": ["dense", "sparse"],
                "rotary_dim": 8,
                "dense_intermediate_size": 64,
                "shared_intermediate_size": 32,
                "index_n_heads": 2,
                "index_head_dim": 16,
            },
        },
    ),
    "hunyuan_vl": Outline(
        {
            "image": "<image>",
            "image_start": "<|image_start|>",
            "image_end": "<|image_end|>",
            "im_start": "<|image_start|>",
            "im_end": "<|image_end|>",
            "im_newline": "<|image_newline|>",
        },
        image="<|image_start|><image><|image_end|>",
        image_options=pixels(16),
        config={
            "text_config": {
                "head_dim": 16,
                "rope_parameters": {
                    "rope_type": "dynamic",
                    "rope_theta": 10000.0,
                    "factor": 1.0,
                    "alpha": 1.0,
                    "xdrope_section": [2, 2, 2, 2],
                    "mrope_section": [2, 2, 2, 2],
                },
            },
            "vision_config": {
                "text_hidden_size": 64,
                "out_hidden_size": 64,
                "num_key_value_heads": 2,
                "max_image_size": 224,
            },
        },
    ),
    "qwen2_5_omni_thinker": _omni("Qwen2_5OmniProcessor", 14, SECTIONS, WINDOWED, d_model=32),
    "qwen3_omni_moe_thinker": _omni(
        "Qwen3OmniMoeProcessor", 16, INTERLEAVED, DEEPSTACK, d_model=32, downsample_hidden_size=16
    ),
}
