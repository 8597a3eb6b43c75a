"""Sizes of published checkpoints, out of their config.json, and how large their makers say they are.

Fields that are left out have the default of the config's class in transformers. Exact numbers are those of
the checkpoints' safetensors files.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Published:
    """A checkpoint.

    Attributes:
        model_type: `config.model_type`.
        text: Of its `text_config`.
        vision: Of its `vision_config`.
        total: Billions of parameters, as its model card or name says.
        active: Billions that are active for a token of text, as its model card or name says; None: all.
        exact: Parameters in its safetensors files, where these are known and transformers loads all of them.
        top: Of its config beside both.
        language: Its decoder.
    """

    model_type: str
    text: dict[str, Any]
    vision: dict[str, Any]
    total: float
    active: float | None = None
    exact: int | None = None
    top: dict[str, Any] | None = None
    language: str = "model.language_model"


QWEN_TOWER = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16}
QWEN3_VL = {
    "vocab_size": 151936,
    "head_dim": 128,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
}
QWEN3_5 = {
    "vocab_size": 248320,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
LLAMA4 = {
    "vocab_size": 202048,
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts_per_tok": 1,
}
LLAMA4_TOWER = {
    "hidden_size": 1408,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
    "vision_output_dim": 4096,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
}
LFM2 = {"vocab_size": 65536, "num_hidden_layers": 16, "num_key_value_heads": 8}
LFM2_TOWER = {"vision_use_head": False, "patch_size": 16, "num_patches": 256}
LFM2_LAYERS = ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)]

PUBLISHED = {
    "Qwen/Qwen3-VL-30B-A3B-Instruct": Published(
        "qwen3_vl_moe",
        QWEN3_VL
        | {
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
        },
        QWEN_TOWER | {"out_hidden_size": 2048},
        total=31.07,
        active=3.3,
        top={"tie_word_embeddings": False},
    ),
    "Qwen/Qwen3-VL-235B-A22B-Instruct": Published(
        "qwen3_vl_moe",
        QWEN3_VL
        | {
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 94,
            "num_attention_heads": 64,
        },
        QWEN_TOWER | {"out_hidden_size": 4096},
        total=235,
        active=22,
        top={"tie_word_embeddings": False},
    ),
    "Qwen/Qwen3.5-35B-A3B": Published(
        "qwen3_5_moe",
        QWEN3_5
        | {
            "hidden_size": 2048,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "num_hidden_layers": 40,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "linear_num_value_heads": 32,
        },
        QWEN_TOWER | {"out_hidden_size": 2048},
        total=35,
        active=3,
    ),
    "Qwen/Qwen3.5-397B-A17B": Published(
        "qwen3_5_moe",
        QWEN3_5
        | {
            "hidden_size": 4096,
            "moe_intermediate_size": 1024,
            "shared_expert_intermediate_size": 1024,
            "num_hidden_layers": 60,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "linear_num_value_heads": 64,
        },
        QWEN_TOWER | {"out_hidden_size": 4096},
        total=397,
        active=17,
    ),
    "Qwen/Qwen3.5-27B": Published(
        "qwen3_5",
        QWEN3_5
        | {
            "hidden_size": 5120,
            "intermediate_size": 17408,
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "linear_num_value_heads": 48,
        },
        QWEN_TOWER | {"out_hidden_size": 5120},
        total=27,
    ),
    "zai-org/GLM-4.5V": Published(
        "glm4v_moe",
        {
            "vocab_size": 151552,
            "hidden_size": 4096,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "num_hidden_layers": 46,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "n_routed_experts": 128,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 1,
            "attention_bias": True,
        },
        {
            "depth": 24,
            "hidden_size": 1536,
            "intermediate_size": 10944,
            "num_heads": 12,
            "out_hidden_size": 4096,
        },
        total=106,
        active=12,
        exact=107_710_933_120 - 45 * 128,  # biases of routers, which are buffers in transformers
    ),
    "baidu/ERNIE-4.5-VL-28B-A3B-PT": Published(
        "ernie4_5_vl_moe",
        {
            "vocab_size": 103424,
            "hidden_size": 2560,
            "intermediate_size": 12288,
            "moe_intermediate_size": [1536, 512],
            "num_hidden_layers": 28,
            "num_attention_heads": 20,
            "num_key_value_heads": 4,
            "moe_num_experts": 64,
            "moe_num_shared_experts": 2,
            "moe_k": 6,
        },
        {"depth": 32, "hidden_size": 1280, "intermediate_size": 5120, "num_heads": 16},
        total=28,
        active=3,
    ),
    "moonshotai/Kimi-K2.5": Published(
        "kimi_k25",
        {
            "vocab_size": 163840,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "n_routed_experts": 384,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 1,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_group": 1,
            "topk_group": 1,
        },
        {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16},
        total=1000,
        active=32,
        top={"tie_word_embeddings": False},
    ),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": Published(
        "llama4",
        LLAMA4 | {"num_local_experts": 16, "interleave_moe_layer_step": 1},
        LLAMA4_TOWER,
        total=109,
        active=17,
        exact=108_641_793_536,
        language="language_model.model",
    ),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": Published(
        "llama4",
        LLAMA4 | {"num_local_experts": 128, "interleave_moe_layer_step": 2},
        LLAMA4_TOWER,
        total=400,
        active=17,
        exact=401_583_781_376,
        language="language_model.model",
    ),
    "LiquidAI/LFM2-VL-1.6B": Published(
        "lfm2_vl",
        LFM2
        | {
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "intermediate_size": 12288,
            "block_auto_adjust_ff_dim": True,
            "layer_types": LFM2_LAYERS,
        },
        LFM2_TOWER
        | {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
        },
        total=1.6,
    ),
    "LiquidAI/LFM2-VL-450M": Published(
        "lfm2_vl",
        LFM2
        | {
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "intermediate_size": 6656,
            "block_auto_adjust_ff_dim": True,
            "layer_types": LFM2_LAYERS,
        },
        LFM2_TOWER
        | {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
        total=0.45,
    ),
}
