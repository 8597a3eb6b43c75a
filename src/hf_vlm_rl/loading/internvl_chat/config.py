"""config.json of the original format -> transformers' `InternVLConfig`."""

from collections.abc import Callable, Mapping
from typing import Any

from transformers import CONFIG_MAPPING, InternVLConfig, PreTrainedConfig

from ...errors import UnsupportedModelError
from ..damage import check_depth

LARGEST_TILE = 4096  # pixels a side; released models have 448

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
    *("_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "architectures"),
    *("attn_implementation", "auto_map", "dtype", "model_type", "quantization_config", "tie_word_embeddings"),
    *("torch_dtype", "transformers_version", "use_bfloat16", "use_cache"),
)

# Key of the original tower's config to transformers' name for it, and to what the original class takes if
# config.json leaves it out: its 6B variant. Keys that only act in the original training code are left out.
VISION: dict[str, tuple[str, Any]] = {
    "attention_dropout": ("attention_dropout", 0.0),
    "dropout": ("hidden_dropout_prob", 0.0),
    "hidden_act": ("hidden_act", "gelu"),
    "hidden_size": ("hidden_size", 3200),
    "image_size": ("image_size", 224),
    "initializer_factor": ("layer_scale_init_value", 0.1),
    "intermediate_size": ("intermediate_size", 12800),
    "layer_norm_eps": ("layer_norm_eps", 1e-6),
    "norm_type": ("norm_type", "rms_norm"),
    "num_attention_heads": ("num_attention_heads", 25),
    "num_channels": ("num_channels", 3),
    "num_hidden_layers": ("num_hidden_layers", 48),
    "patch_size": ("patch_size", 14),
    "qk_normalization": ("use_qk_norm", True),
    "qkv_bias": ("attention_bias", False),
}
# Likewise of config.json itself. The pixel shuffle's first version is the default, and every release sets the
# second.
CHAT_DEFAULTS = {
    "downsample_ratio": 0.5,
    "dynamic_image_size": False,
    "force_image_size": None,
    "max_dynamic_patch": 6,
    "min_dynamic_patch": 1,
    "pad2square": False,
    "ps_version": "v1",
    "select_layer": -1,
    "system_message": None,
    "template": None,
    "use_thumbnail": False,
}


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


def chat_options(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of config.json that concern images and prompts, with the original defaults."""
    return {key: stored.get(key, default) for key, default in CHAT_DEFAULTS.items()}


def tile_size(stored: Mapping[str, Any]) -> int:
    """Side of a tile in pixels.

    Raises:
        UnsupportedModelError: If it is beyond `LARGEST_TILE`.
    """
    side = stored.get("force_image_size") or _vision(stored)["image_size"]
    if not 1 <= side <= LARGEST_TILE:
        raise UnsupportedModelError(
            f"config.json has tiles of {side} pixels a side (force_image_size or vision_config.image_size). "
            f"Expected 1 to {LARGEST_TILE}."
        )
    return side


def tokens_per_tile(stored: Mapping[str, Any]) -> int:
    """Image features that one tile gives."""
    side = tile_size(stored) // _vision(stored)["patch_size"]
    return int(side**2 * chat_options(stored)["downsample_ratio"] ** 2)


def convert_config(
    stored: Mapping[str, Any], image_token_id: int, has_head: Callable[[], bool], source: str
) -> InternVLConfig:
    """Convert config.json of the original format; `image_token_id` is that of `<IMG_CONTEXT>`.

    `has_head` says whether a head is stored. It is asked only if the config ties the head to the embeddings,
    which some releases do and store one nevertheless.

    Raises:
        UnsupportedModelError: If the checkpoint has a part that transformers' InternVL has not.
    """
    check_depth(stored, source)
    chat = chat_options(stored)
    if chat["pad2square"]:
        raise UnsupportedModelError(
            f"config.json of {source!r} has pad2square=true, which transformers' InternVL cannot do."
        )
    if chat["ps_version"] != "v2":
        raise UnsupportedModelError(
            f"config.json of {source!r} has ps_version {chat['ps_version']!r} (the default is 'v1'), which "
            "gives each tile's features column by column. transformers' InternVL has 'v2' alone, as every "
            "released checkpoint that is known here."
        )
    tied = bool(stored["llm_config"].get("tie_word_embeddings", False)) and not has_head()
    text = _text_config(stored, source)
    text.tie_word_embeddings = tied
    config = InternVLConfig(
        text_config=text,
        vision_config=_vision_config(stored, source),
        image_token_id=image_token_id,
        image_seq_length=tokens_per_tile(stored),
        downsample_ratio=chat["downsample_ratio"],
        vision_feature_layer=chat["select_layer"],
        tie_word_embeddings=tied,  # transformers' default is True
        architectures=["InternVLForConditionalGeneration"],
        dtype=stored.get("torch_dtype") or stored.get("dtype"),
    )
    config.name_or_path = source
    return config


def _text_config(stored: Mapping[str, Any], source: str) -> PreTrainedConfig:
    """`llm_config` of the original format as the config of transformers' own language model."""
    name, llm = backbone_of(stored, source), dict(stored["llm_config"])
    if name == "InternLM2ForCausalLM":
        llm |= {"attention_bias": llm.get("bias", True), "mlp_bias": False}
    if llm.get("rope_scaling"):
        scaling = dict(llm["rope_scaling"])
        kind = scaling.pop("type", None)
        # "su" is what Phi3's own code called longrope.
        llm["rope_scaling"] = {"rope_type": "longrope" if kind == "su" else kind} | scaling
    config_class = CONFIG_MAPPING[BACKBONES[name]]
    known = config_class().to_dict().keys() | {"rope_theta", "rope_scaling", "rope_parameters"}
    settings = {key: value for key, value in llm.items() if key in known and key not in _NOT_ARCHITECTURE}
    return config_class(**settings)


def _vision(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {key: default for key, (_, default) in VISION.items()} | (stored.get("vision_config") or {})


def _vision_config(stored: Mapping[str, Any], source: str) -> dict[str, Any]:
    vision = _vision(stored)
    name = (vision.get("architectures") or ["InternVisionModel"])[0]
    if name != "InternVisionModel":
        raise UnsupportedModelError(
            f"config.json of {source!r} has the vision tower {name!r}. Known: InternVisionModel."
        )
    if vision["qk_normalization"] and vision["layer_norm_eps"] != 1e-6:
        raise UnsupportedModelError(
            f"config.json of {source!r} has qk_normalization with layer_norm_eps "
            f"{vision['layer_norm_eps']}; transformers' InternVL always takes 1e-6 there."
        )
    return {
        **{ours: vision[key] for key, (ours, _) in VISION.items()},
        "projection_dropout": vision["dropout"],
        "use_mean_pooling": True,  # that is: no norm after the last layer
    }
