"""Gemma's later classes, and Gemma 3 as a judge of images."""

from typing import Any

from tests.tiny.every.parts import square

from .outline import Id, Outline, VocabularySize
from .views import FASTVIT

_WORDS_3 = {"boi": "<start_of_image>", "eoi": "<end_of_image>", "image": "<image_soft_token>"}
_WORDS_4 = {
    "image": "<|image|>",
    "video": "<|video|>",
    "audio": "<|audio|>",
    "boi": "<|image>",
    "eoi": "<image|>",
    "boa": "<|audio>",
    "eoa": "<audio|>",
}
_TEXT_4 = {
    "vocab_size_per_layer_input": VocabularySize(),
    "hidden_size_per_layer_input": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_kv_shared_layers": 0,
    "global_head_dim": 16,
    "num_global_key_value_heads": 2,
}
_AUDIO_3N = {
    "hidden_size": 32,
    "conf_num_attention_heads": 2,
    "conf_num_hidden_layers": 1,
    "sscp_conv_channel_size": [8, 8],
    "input_feat_size": 128,
}


def _gemma4(**vision: Any) -> Outline:
    return Outline(
        _WORDS_4,
        image_options={"max_soft_tokens": 70},
        config={"text_config": _TEXT_4, "vision_config": vision},
    )


OUTLINES: dict[str, Outline] = {
    "shieldgemma2": Outline(
        _WORDS_3,
        image="<start_of_image>",
        # Its own layout is that of its classifier, which this class misreads.
        original_format=False,
        processor="Gemma3Processor",
        options={"image_seq_length": 16},
        image_options={"size": square(112)},
        config={
            "mm_tokens_per_image": 16,
            "text_config": {"head_dim": 16, "query_pre_attn_scalar": 16},
            "vision_config": {"image_size": 112, "patch_size": 14, "vision_use_head": False},
        },
    ),
    "gemma3n": Outline(
        # In this order, as published: words from the end of an image on are looked up in `embed_vision`,
        # words from the end of a sound on in `embed_audio`.
        {
            "boi": "<start_of_image>",
            "boa": "<start_of_audio>",
            "eoi": "<end_of_image>",
            "image": "<image_soft_token>",
            "eoa": "<end_of_audio>",
            "audio": "<audio_soft_token>",
        },
        options={"image_seq_length": 16},
        image_options={"size": square(256)},
        config={
            "vision_soft_tokens_per_image": 16,
            "text_config": {
                "intermediate_size": [128, 128],
                "layer_types": ["sliding_attention", "full_attention"],
                "num_kv_shared_layers": 0,
                "activation_sparsity_pattern": [0.0, 0.0],
                "hidden_size_per_layer_input": 16,
                "vocab_size_per_layer_input": Id("<end_of_image>"),
                "laurel_rank": 8,
            },
            "vision_config": {
                # The convolutions of FastVLM: no option makes Gemma's own MobileNet small.
                **FASTVIT,
                "vocab_size": 2,
                "vocab_offset": Id("<end_of_image>"),
            },
            "audio_config": _AUDIO_3N | {"vocab_size": 8, "vocab_offset": Id("<end_of_audio>")},
        },
    ),
    "gemma4": _gemma4(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        position_embedding_size=64,
    ),
    "gemma4_unified": _gemma4(mm_embed_dim=32, mm_posemb_size=64, output_proj_dims=32),
}
