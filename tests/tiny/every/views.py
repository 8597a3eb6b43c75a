"""Classes with one view or several square tiles an image, each through a projected tower."""

from tests.tiny.every.parts import square

from .outline import Id, Outline, VocabularySize

_IMAGE = {"image": "<image>"}
_VIDEO = _IMAGE | {"video": "<video>"}
_MISTRAL = {"image": "[IMG]", "image_break": "[IMG_BREAK]", "image_end": "[IMG_END]"}
_TOWER = {"image_size": 112, "patch_size": 14}
_HEADLESS = _TOWER | {"vision_use_head": False}
_SMALL_TOWER = {"image_size": 56, "patch_size": 14}
# timm's convolutional tower: one vector of 128 for each 64 x 64 pixels.
FASTVIT = {
    "architecture": "fastvit_mci3",
    "hidden_size": 128,
    "model_args": {"layers": [1, 1, 1, 1, 1], "embed_dims": [8, 16, 32, 64, 64], "inference_mode": True},
}
_CROP = {"size": {"shortest_edge": 56}, "crop_size": square(56)}
_CLIP = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
_PINPOINTS = {"image_grid_pinpoints": [[56, 112], [112, 56]]}
_TILES = {"size": square(112), "crop_to_patches": True, "max_patches": 4}


OUTLINES: dict[str, Outline] = {
    "aria": Outline(
        _IMAGE,
        # Images become 490 or 980 pixels wide, whatever the options: the patches are large instead.
        options={"size_conversion": {490: 16, 980: 32}},
        image_options={"max_image_size": 490},
        config={
            "projector_patch_to_query_dict": {"49": 16, "196": 32},
            "vision_config": {"image_size": 490, "patch_size": 70},
        },
    ),
    "aya_vision": Outline(
        {"image": "<|IMG_PATCH|>"},
        image="<image>",
        more_words=(
            "<image>",
            "<|START_OF_IMG|>",
            "<|END_OF_IMG|>",
            "<|IMG_LINE_BREAK|>",
            "TILE",
            "TILE_GLOBAL",
        ),
        options={"patch_size": 14, "img_size": 112, "downsample_factor": 2},
        image_options=_TILES,
        config={"downsample_factor": 2, "alignment_intermediate_size": 128, "vision_config": _TOWER},
    ),
    "cohere2_vision": Outline(
        {
            "image": "<|IMG_PATCH|>",
            "boi": "<|START_OF_IMG|>",
            "eoi": "<|END_OF_IMG|>",
            "img_line_break": "<|IMG_LINE_BREAK|>",
        },
        image_options={"size": square(112), "patch_size": 4, "max_patches": 4},
        config={"downsample_factor": 2, "alignment_intermediate_size": 128, "vision_config": _HEADLESS},
    ),
    "deepseek_vl": Outline(
        _IMAGE,
        options={"num_image_tokens": 64},
        image_options={"size": square(112)},
        config={"vision_config": _HEADLESS},
    ),
    "deepseek_vl_hybrid": Outline(
        _IMAGE,
        options={"num_image_tokens": 64},
        image_options={"size": square(112), "high_res_size": square(256)},
        config={
            "vision_config": _HEADLESS,
            "high_res_vision_config": {
                "image_size": 256,
                "patch_size": 16,
                "output_channels": 32,
                "global_attn_indexes": [0, 1],
                "window_size": 4,
                "mlp_dim": 64,
                "num_hidden_layers": 2,
            },
        },
    ),
    "fast_vlm": Outline(
        _IMAGE,
        processor="LlavaProcessor",
        image_processor="CLIPImageProcessor",
        options={"patch_size": 64, "vision_feature_select_strategy": "full"},
        image_options={"size": {"shortest_edge": 256}, "crop_size": square(256)},
        config={
            "image_seq_length": 16,
            "vision_config": FASTVIT | {"do_pooling": False},
        },
    ),
    "lfm2_vl": Outline(
        _IMAGE,
        more_words=("<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
        config={
            "text_config": {"layer_types": ["conv", "full_attention"], "full_attn_idxs": [1]},
            "vision_config": {"vision_use_head": False},
        },
    ),
    "lighton_ocr": Outline(
        {"image": "<|image_pad|>", "image_break": "<|vision_pad|>", "image_end": "<|vision_end|>"}
    ),
    "llava_next_video": Outline(
        _VIDEO,
        options=_CLIP,
        image_options=_CROP | _PINPOINTS,
        config=_PINPOINTS | {"vision_config": _SMALL_TOWER},
    ),
    "mistral_large4": Outline(
        _MISTRAL,
        options={"patch_size": 14, "spatial_merge_size": 2},
        image_options={"size": {"longest_edge": 168}, "patch_size": 14},
        config={
            "spatial_merge_size": 2,
            "vision_config": {"image_size": 168, "patch_size": 14, "head_dim": 16},
            "text_config": {
                "kv_source_layers": [0, 1],
                "no_rope_layers": [1, 0],
                "indexer_types": ["full", "full"],
                "mlp_layer_types": ["dense", "sparse"],
                "index_n_heads": 2,
                "index_head_dim": 32,
                "head_dim": 16,
                "num_key_value_heads": 4,
            },
        },
    ),
    "muse_glimmer": Outline(
        {"image": "<|patch|>", "video": "<|video|>"},
        more_words=(
            "<|image_start|>",
            "<|image_end|>",
            "<|vid_frame_separator|>",
            "<|vid_start|>",
            "<|vid_end|>",
        ),
        config={
            "out_hidden_size": 128,
            "projector_hidden_size": 64,
            "text_config": {"layer_rope_theta": [10000.0, 0]},
        },
    ),
    "ovis2": Outline(
        {"image": "<IMG_ATOM>"},
        image="<image>",
        more_words=("<image>", "<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"),
        options={"image_seq_length": 16},
        image_options={"size": square(112)},
        config={
            "hidden_size": 64,
            "vocab_size": VocabularySize(),
            "visual_indicator_token_ids": [
                Id(f"<IMG_{part}>") for part in ("START", "GRID", "COL", "ROW", "END")
            ],
            "vision_config": _TOWER | {"hidden_stride": 2, "vocab_size": 128},
        },
    ),
    "perception_lm": Outline(
        _VIDEO,
        options={"patch_size": 16, "pooling_ratio": 2},
        # Stock stacks no images of different numbers of tiles.
        image_options={"size": square(128), "tile_size": 128, "max_num_tiles": 1},
        config={
            "projector_pooling_ratio": 2,
            "vision_use_cls_token": True,
            "vision_config": {
                "architecture": "vit_tiny_patch16_224",
                "do_pooling": False,
                "model_args": {
                    "img_size": 128,
                    "global_pool": "",
                    "embed_dim": 32,
                    "num_heads": 2,
                    "depth": 2,
                },
            },
        },
    ),
    "qianfan_ocr": Outline(
        {
            "image": "<IMG_CONTEXT>",
            "context_image": "<IMG_CONTEXT>",
            "start_image": "<img>",
            "end_image": "</img>",
        },
        image="<image>",
        more_words=("<image>",),
        options={"image_seq_length": 16},
        image_options=_TILES,
        config={
            "downsample_ratio": 0.5,
            "image_seq_length": 16,
            "vision_config": {"image_size": [112, 112], "patch_size": [14, 14]},
        },
    ),
    "step3p7": Outline(
        {"image": "<im_patch>"},
        more_words=("<patch_newline>", "<patch_start>", "<patch_end>", "<im_start>", "<im_end>"),
        # One token for each 56 x 56 pixels of the whole and of each window.
        image_options={"size": square(224), "patch_size": 112},
        config={
            "text_config": {
                "sliding_window": 64,
                "num_sliding_attention_heads": 4,
                "share_expert_dim": 32,
                "mlp_layer_types": ["dense", "sparse"],
                "layer_types": ["full_attention", "sliding_attention"],
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            },
            "vision_config": {"image_size": 224, "max_position_embeddings": 256},
        },
    ),
    "video_llava": Outline(_VIDEO, image_options=_CROP, config={"vision_config": _SMALL_TOWER}),
    "vipllava": Outline(
        _IMAGE,
        options=_CLIP,
        image_options=_CROP,
        config={"vision_feature_layers": [-1, -2], "vision_config": _SMALL_TOWER},
    ),
}
