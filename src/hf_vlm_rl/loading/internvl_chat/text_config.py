"""`llm_config` of the original format -> the config of transformers' own language model."""

from collections.abc import Mapping
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

from ...errors import UnsupportedModelError

# Class of the original language model -> transformers' model type.
BACKBONES = {
    "InternLM2ForCausalLM": "llama",  # the same network; only its weights are stored another way
    "LlamaForCausalLM": "llama",
    "Phi3ForCausalLM": "phi3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}

# Keys of a stored llm_config that say how it was once loaded, not what the model is.
_NOT_ARCHITECTURE = (
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "auto_map",
    "dtype",
    "model_type",
    "quantization_config",
    "tie_word_embeddings",
    "torch_dtype",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
)
_INTERNLM2_KEYS = (
    "bos_token_id",
    "eos_token_id",
    "hidden_act",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "pad_token_id",
    "rms_norm_eps",
    "rope_scaling",
    "rope_theta",
    "vocab_size",
)


def backbone_of(stored: Mapping[str, Any], source: str) -> str:
    """Class name of the original language model.

    Raises:
        UnsupportedModelError: If it is none of `BACKBONES`.
    """
    names = (stored.get("llm_config") or {}).get("architectures") or [None]
    if names[0] not in BACKBONES:
        raise UnsupportedModelError(
            f"config.json of {source!r} has the language model {names[0]!r} "
            f"(llm_config.architectures). Known: {', '.join(BACKBONES)}."
        )
    return names[0]


def convert_text_config(stored: Mapping[str, Any], source: str) -> PreTrainedConfig:
    """Convert the language model's part of a config.

    Args:
        stored: config.json of the original format.
        source: The checkpoint, for the message.

    Raises:
        UnsupportedModelError: If the language model is unknown.
    """
    name, llm = backbone_of(stored, source), dict(stored["llm_config"])
    if name == "InternLM2ForCausalLM":
        bias = llm.get("bias", True)
        llm = {key: llm[key] for key in _INTERNLM2_KEYS if key in llm}
        llm |= {"attention_bias": bias, "mlp_bias": False}
    if llm.get("rope_scaling"):
        scaling = dict(llm["rope_scaling"])
        kind = scaling.pop("type", None)
        # "su" is what Phi3's own code called longrope.
        llm["rope_scaling"] = {"rope_type": "longrope" if kind == "su" else kind} | scaling
    config_class = CONFIG_MAPPING[BACKBONES[name]]
    known = config_class().to_dict().keys() | {"rope_theta", "rope_scaling", "rope_parameters"}
    kept = {key: value for key, value in llm.items() if key in known and key not in _NOT_ARCHITECTURE}
    return config_class(**kept)
