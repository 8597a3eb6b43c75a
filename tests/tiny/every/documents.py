"""Classes that read pages: many tiles of one image, their encoders stacked."""

from typing import Any

from tests.tiny.every.parts import square

from .outline import Outline


def _sam(image_size: int, patch_size: int) -> dict[str, Any]:
    """A SAM encoder of two layers, the first in windows, that halves its map twice."""
    return {
        "image_size": image_size,
        "patch_size": patch_size,
        "output_channels": 32,
        "downsample_channels": [48, 64],
        "global_attn_indexes": [1],
        "window_size": 4,
        "mlp_dim": 64,
    }


OUTLINES: dict[str, Outline] = {
    "deepseek_ocr2": Outline(
        {"image": "<image>"},
        options={"patch_size": 8},
        # The model has 144 queries for a view, whatever its size.
        image_options={"size": square(384), "tile_size": 384},
        config={
            "text_config": {
                "mlp_layer_types": ["dense", "sparse"],
                "num_experts_per_tok": 2,
                "n_group": 1,
                "topk_group": 1,
            },
            "vision_config": {
                "sam_config": _sam(384, 8),
                "encoder_config": {
                    "hidden_size": 64,
                    "num_attention_heads": 4,
                    "num_key_value_heads": 2,
                    "num_hidden_layers": 2,
                    "intermediate_size": 64,
                },
            },
        },
    ),
    "unlimited_ocr": Outline(
        {"image": "<image>"},
        image_options={"size": square(256), "tile_size": 128, "max_patches": 4},
        config={
            "text_config": {"mlp_layer_types": ["dense", "sparse"]},
            "vision_config": {
                "sam_config": _sam(256, 16),
                "encoder_config": {"image_size": 56, "patch_size": 14},
            },
        },
    ),
    "pp_chart2table": Outline(
        {"image": "<imgpad>"},
        more_words=("<img>", "</img>"),
        # The template writes all of an image's words: the processor repeats none.
        image="<img>" + "<imgpad>" * 16 + "</img>",
        no_policy="its processor has no image token",
        image_options={"size": square(128)},
        config={
            "image_seq_length": 16,
            "vision_config": {
                "image_size": 128,
                "patch_size": 8,
                "output_channels": 16,
                "global_attn_indexes": [1],
                "window_size": 4,
                "mlp_dim": 64,
            },
        },
    ),
    "granite_docling": Outline(
        {"image": "<image>"},
        more_words=(
            "<fake_token_around_image>",
            "<global-img>",
            *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
        ),
        options={"image_seq_len": 16},
        image_options={"size": square(256), "max_patches": 2},
        config={
            # The usual values make a narrow model see next to nothing of an image.
            "text_config": {
                "num_hidden_layers": 3,
                "attention_multiplier": 0.25,
                "residual_multiplier": 0.5,
                "embedding_multiplier": 2.0,
                "logits_scaling": 2.0,
            },
            "vision_config": {
                "image_size": 256,
                "deepstack_visual_indexes": [0, 1],
                "out_hidden_size": 64,
            },
        },
    ),
}
