"""Classes that hand no encoder output to a backbone: they embed, cross-attend or call in their own way."""

from tests.tiny.every.parts import square

from .outline import Id, Outline

_ANYRES = {"image_grid_pinpoints": [[56, 112], [112, 56]]}

OUTLINES: dict[str, Outline] = {
    "llama4": Outline(
        {"image": "<|patch|>", "boi": "<|image_start|>", "eoi": "<|image_end|>"},
        image="<|image|>",
        more_words=("<|image|>", "<|tile_x_separator|>", "<|tile_y_separator|>"),
        options={"patch_size": 14, "pixel_shuffle_ratio": 0.5},
        image_options={"size": square(56), "max_patches": 4},
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
        image_options=_ANYRES | {"size": {"shortest_edge": 56}, "crop_size": square(56)},
        config=_ANYRES
        | {
            "downsample_rate": "2/4",
            # Each of its four spatial projectors goes into a decoder layer of its own.
            "deepstack_layer_map": [[-1, 0]],
            "spatial_target_layers": [1, 2, 3, 4],
            "text_config": {"num_hidden_layers": 5},
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
    "mllama": Outline(
        {"bos": "<|begin_of_text|>", "python": "<|python_tag|>", "image": "<|image|>"},
        image_options={"size": square(56)},
        config={
            # As in the original, the word for an image has an embedding but no logit.
            "text_config": {
                "vocab_size": Id("<|image|>"),
                "num_hidden_layers": 3,
                "cross_attention_layers": [1],
            },
            "vision_config": {
                "image_size": 56,
                "patch_size": 14,
                "attention_heads": 2,
                "num_global_layers": 1,
                "intermediate_layers_indices": [0, 1],
                "vision_output_dim": 96,
            },
        },
    ),
    "blip-2": Outline(
        # The processor wants no name of it; it puts the images in front of the text itself.
        {},
        more_words=("<image>",),
        image="",
        one_image=True,
        no_policy="captions: its image token is no text, and it sees the first image of a row alone",
        options={"num_query_tokens": 16},
        image_options={"size": square(56)},
        config={
            "num_query_tokens": 16,
            "image_token_index": Id("<image>"),
            "text_config": {
                "word_embed_proj_dim": 64,
                "ffn_dim": 128,
            },
            "vision_config": {"image_size": 56, "patch_size": 14},
            "qformer_config": {"encoder_hidden_size": 32, "cross_attention_frequency": 1},
        },
    ),
    "phi4_multimodal": Outline(
        {"image": "<|endoftext10|>", "audio": "<|endoftext11|>"},
        # Its processor counts 16 x 16 merged patches for the view of the whole, whatever the options.
        image_options={"size": square(256), "patch_size": 8, "dynamic_hd": 4},
        config={
            "vision_config": {"image_size": 256, "crop_size": 256, "patch_size": 8},
            "audio_config": {
                "num_blocks": 2,
                "nemo_conv_channels": 8,
                "ext_pw_out_channel": 32,
                "depthwise_separable_out_channel": 32,
                "bias_max_distance": 8,
            },
        },
    ),
    "nemotron_h_omni": Outline(
        {
            "image": "<image>",
            "video": "<video>",
            "audio": "<so_embedding>",
            "image_start": "<img>",
            "image_end": "</img>",
        },
        more_words=("<so_start>", "<so_end>"),
        feature_extractor="ParakeetFeatureExtractor",
        image_options={"min_num_patches": 64, "max_num_patches": 256},
        config={
            "projector_hidden_size": 64,
            "vision_hidden_size": 32,
            "text_config": {
                "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
                "ssm_state_size": 16,
                "mamba_num_heads": 4,
                "mamba_head_dim": 16,
                "n_groups": 2,
                "chunk_size": 32,
            },
            "vision_config": {"max_img_size": 256, "image_size": 224},
        },
    ),
}
