"""Classes that fit no group: slices in one row, discrete images, two towers, nested crops."""

from ..recipe import square
from .outline import Id, Outline
from .qwen_like import LINEAR_ATTENTION

_MINICPM = {
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
    "image_start": "<image>",
    "image_end": "</image>",
    "slice_start": "<slice>",
    "slice_end": "</slice>",
    "image_id_start": "<image_id>",
    "image_id_end": "</image_id>",
}


def _minicpm(**more) -> Outline:
    return Outline(
        _MINICPM,
        image_options={"scale_resolution": 224, "max_slice_nums": 4, "patch_size": 16},
        config={
            "image_size": 224,
            "patch_size": 16,
            "insert_layer_id": 0,
            "vision_config": {"image_size": 224, "patch_size": 16, "insert_layer_id": 0},
            "text_config": LINEAR_ATTENTION,
            **more,
        },
    )


OUTLINES: dict[str, Outline] = {
    "minicpmv4_6": _minicpm(),
    "minicpmv4_7": _minicpm(),
    "minicpm_ocr": _minicpm(),
    "molmo2": Outline(
        {
            "image": "<|image|>",
            "video": "<|video|>",
            "bos": "<|bos|>",
            "image_patch": "<im_patch>",
            "image_start": "<im_start>",
            "image_end": "<im_end>",
            "low_res_image_start": "<low_res_im_start>",
            "frame_start": "<frame_start>",
            "frame_end": "<frame_end>",
        },
        more_words=("<im_col>", "<im_low>"),
        config={
            "text_config": {"rope_scaling_layers": None, "additional_vocab_size": 8},
            "adapter_config": {
                "vision_feature_layer": [1, 0],
                "text_hidden_size": 64,
                "num_key_value_heads": 2,
                "head_dim": 16,
            },
            "vision_config": {"num_key_value_heads": 2, "head_dim": 16, "image_size": [378, 378]},
        },
    ),
    "granite_docling": Outline(
        {"image": "<image>"},
        more_words=("<fake_token_around_image>", "<global-img>"),
        config={
            "vision_config": {
                "image_size": 512,
                "deepstack_visual_indexes": [0, 1],
                "out_hidden_size": 64,
            }
        },
    ),
    "chameleon": Outline(
        {"image": "<image>", "boi": "<racm3:break>", "eoi": "<eoss>", "sep": "<reserved08706>"},
        more_words=tuple(f"<c{number}>" for number in range(64)),
        options={"image_seq_length": 16},
        image_options={"size": {"shortest_edge": 64}, "crop_size": square(64)},
        config={
            "num_key_value_heads": 4,
            "vocabulary_map": {"<image>": Id("<image>")}
            | {
                "IMGIMG" + "".join(chr(ord("A") + int(digit)) for digit in str(number)) + "Z": Id(
                    f"<c{number}>"
                )
                for number in range(64)
            },
            "vq_config": {
                "num_embeddings": 64,
                "resolution": 64,
                "base_channels": 32,
                "channel_multiplier": [1, 1, 1, 1, 1],
                "num_res_blocks": 1,
                "embed_dim": 16,
                "latent_channels": 16,
            },
        },
    ),
    "janus": Outline(
        {"image": "<image_placeholder>", "boi": "<begin_of_image>", "eoi": "<end_of_image>"},
        options={"num_image_tokens": 16},
        image_options={"size": square(64)},
        config={
            "vision_config": {
                "image_size": 64,
                "patch_size": 16,
                "projection_dim": 64,
                "num_image_tokens": 16,
            },
            "vq_config": {
                "base_channels": 32,
                "channel_multiplier": [1, 1],
                "num_res_blocks": 1,
                "latent_channels": 32,
                "num_embeddings": 64,
                "projection_dim": 64,
                "image_token_embed_dim": 64,
                "num_patches": 32,
            },
        },
    ),
    "deepseek_ocr2": Outline(
        {"image": "<image>"},
        config={
            "text_config": {
                "num_experts_per_tok": 2,
                "mlp_layer_types": ["dense", "sparse"],
                "n_group": 1,
                "topk_group": 1,
            },
            "vision_config": {
                "sam_config": {
                    "output_channels": 32,
                    "downsample_channels": [48, 64],
                    "global_attn_indexes": [1],
                    "mlp_dim": 64,
                },
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
        config={
            "text_config": {"mlp_layer_types": ["dense", "sparse"], "sliding_window": 2048},
            "vision_config": {
                "sam_config": {
                    "output_channels": 32,
                    "downsample_channels": [48, 64],
                    "global_attn_indexes": [1],
                    "mlp_dim": 64,
                    "image_size": 1024,
                },
                "encoder_config": {"image_size": 224, "patch_size": 14},
            },
        },
    ),
    "llama4": Outline(
        {"image": "<|patch|>", "boi": "<|image_start|>", "eoi": "<|image_end|>"},
        image="<|image|>",
        more_words=("<|image|>", "<|tile_x_separator|>", "<|tile_y_separator|>"),
        options={"patch_size": 14, "pixel_shuffle_ratio": 0.5},
        image_options={"size": square(56)},
        config={
            "vision_config": {
                "image_size": 56,
                "patch_size": 14,
                "vision_output_dim": 64,
                "projector_input_dim": 64,
                "projector_output_dim": 64,
                "intermediate_size": 128,
                "hidden_size": 32,
            },
            "text_config": {
                "no_rope_layers": [1, 0],
                "moe_layers": [0, 1],
                "layer_types": ["chunked_attention", "full_attention"],
            },
        },
    ),
    "granite4_vision": Outline(
        {"image": "<image>"},
        options={
            "patch_size": 14,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
            "downsample_rate": "2/4",
        },
        image_options={
            "size": {"shortest_edge": 56},
            "crop_size": square(56),
            "image_grid_pinpoints": [[56, 112], [112, 56]],
        },
        config={
            "downsample_rate": "2/4",
            "deepstack_layer_map": [[-1, 0]],
            "spatial_target_layers": [1],
            "image_grid_pinpoints": [[56, 112], [112, 56]],
            "vision_config": {"image_size": 56, "patch_size": 14, "hidden_size": 64},
            "qformer_config": {
                "num_attention_heads": 2,
                "cross_attention_frequency": 1,
                "num_hidden_layers": 1,
                "hidden_size": 32,
                "encoder_hidden_size": 32,
                "intermediate_size": 64,
            },
        },
    ),
    "idefics2": Outline(
        {"image": "<image>", "image_boundary": "<fake_token_around_image>"},
        more_words=("<end_of_utterance>",),
        options={"image_seq_len": 16},
        image_options={"do_image_splitting": False, "size": {"shortest_edge": 84, "longest_edge": 112}},
        config={
            "vision_config": {"image_size": 112, "patch_size": 14},
            "perceiver_config": {
                "resampler_n_latents": 16,
                "resampler_depth": 2,
                "resampler_n_heads": 2,
                "resampler_head_dim": 16,
                "num_key_value_heads": 2,
                "hidden_size": 64,
            },
        },
    ),
    "inkling2": Outline({"image": "<|unused_200054|>"}),
    "inkling_mm_model": Outline(
        {
            "image": "<|unused_200054|>",
            "audio": "<|unused_200053|>",
            "image_bos": "<|content_image|>",
            "audio_bos": "<|content_audio_input|>",
        }
    ),
    "muse_spark": Outline(
        {"image": "<|patch|>", "video": "<|video|>", "audio": "<|audio|>"},
        more_words=(
            "<|image_start|>",
            "<|image_end|>",
            "<|vid_frame_separator|>",
            "<|vid_start|>",
            "<|vid_end|>",
            "<|soft_audio_start|>",
            "<|soft_audio_end|>",
        ),
        config={
            "out_hidden_size": 128,
            "projector_hidden_size": 64,
            "text_config": {
                "layer_rope_theta": [10000.0, 0],
                "moe_hidden_size": 64,
                "mlp_layer_types": ["sparse", "sparse"],
            },
            "audio_config": {
                "num_hidden_layers": 2,
                "patch_sizes": [16, 6],
                "hidden_sizes": [32, 32],
                "depths": [1, 1],
                "out_hidden_size": 64,
            },
        },
    ),
}
