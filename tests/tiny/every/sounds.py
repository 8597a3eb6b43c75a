"""Classes with a tower for sounds beside the one for images; the sounds are never heard here."""

from .outline import Outline, VocabularySize
from .qwen_like import pixels

OUTLINES: dict[str, Outline] = {
    "inkling2": Outline(
        {"image": "<|unused_200054|>"},
        config={
            "text_config": {"swa_num_attention_heads": 4, "unpadded_vocab_size": VocabularySize()},
            "vision_config": {"projection_hidden_dim": 64},
        },
    ),
    "inkling_mm_model": Outline(
        {
            "image": "<|unused_200054|>",
            "audio": "<|unused_200053|>",
            "image_bos": "<|content_image|>",
            "audio_bos": "<|content_audio_input|>",
        },
        config={
            "text_config": {"swa_num_attention_heads": 4, "logits_mup_width_multiplier": 1.0},
            "audio_config": {"n_mel_bins": 8, "mel_vocab_size": 16},
        },
        options={"num_dmel_bins": 16},
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
    "dots3_note": Outline(
        {"image": "<|imgpad|>", "video": "<|video_pad|>", "audio": "<|audio_comp_pad|>"},
        image_options=pixels(14) | {"temporal_patch_size": 1},
        config={
            "text_config": {
                "num_key_value_heads": 4,
                "head_dim": 32,
                "index_n_heads": 2,
                "index_head_dim": 32,
                "layer_types": ["indexed_attention", "sliding_attention"],
                "shared_experts_intermediate_size": 32,
                "swa_num_attention_heads": 4,
                "swa_num_key_value_heads": 4,
                "swa_q_lora_rank": 32,
                "swa_kv_lora_rank": 16,
                "swa_head_dim": 32,
                "swa_qk_nope_head_dim": 16,
                "swa_v_head_dim": 16,
            },
            "vision_config": {"adapter_in_dim": 32, "adapter_out_dim": 64},
            "audio_config": {
                "adapter_input_size": 32,
                "adapter_out_dim": 64,
                "downsample_hidden_size": 16,
            },
        },
    ),
}
