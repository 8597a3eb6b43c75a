"""config.json of the original format -> transformers' `InternVLConfig`."""

from collections.abc import Mapping
from typing import Any

from transformers import InternVLConfig

from ...errors import UnsupportedModelError
from .text_config import convert_text_config

# What the original classes take for keys that config.json leaves out. Those of the tower are its
# 6B variant's; the pixel shuffle's first version is the default, although every release sets v2.
VISION_DEFAULTS = {
    "attention_dropout": 0.0,
    "dropout": 0.0,
    "hidden_act": "gelu",
    "hidden_size": 3200,
    "image_size": 224,
    "initializer_factor": 0.1,
    "intermediate_size": 12800,
    "layer_norm_eps": 1e-6,
    "norm_type": "rms_norm",
    "num_attention_heads": 25,
    "num_channels": 3,
    "num_hidden_layers": 48,
    "patch_size": 14,
    "qk_normalization": True,
    "qkv_bias": False,
}
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


def chat_options(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of config.json that concern images and prompts, with the original defaults."""
    return {key: stored.get(key, default) for key, default in CHAT_DEFAULTS.items()}


def tile_size(stored: Mapping[str, Any]) -> int:
    """Side of a tile in pixels."""
    return stored.get("force_image_size") or _vision(stored)["image_size"]


def tokens_per_tile(stored: Mapping[str, Any]) -> int:
    """Image features that one tile gives."""
    side = tile_size(stored) // _vision(stored)["patch_size"]
    return int(side**2 * chat_options(stored)["downsample_ratio"] ** 2)


def convert_config(
    stored: Mapping[str, Any], image_token_id: int, has_head: bool, source: str
) -> InternVLConfig:
    """Convert a config.

    Args:
        stored: config.json of the original format.
        image_token_id: Id of `<IMG_CONTEXT>` in the checkpoint's tokenizer.
        has_head: Whether the checkpoint stores the language model's head.
        source: The checkpoint, for messages.

    Raises:
        UnsupportedModelError: If the checkpoint has a part that transformers' InternVL has not.
    """
    chat = chat_options(stored)
    if chat["pad2square"]:
        raise UnsupportedModelError(
            f"config.json of {source!r} has pad2square=true, which transformers' InternVL cannot do."
        )
    tied = bool(stored["llm_config"].get("tie_word_embeddings", False)) and not has_head
    text = convert_text_config(stored, source)
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


def _vision(stored: Mapping[str, Any]) -> dict[str, Any]:
    return VISION_DEFAULTS | (stored.get("vision_config") or {})


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
    # drop_path_rate and initializer_range are left out: they only act in the original training code.
    return {
        "attention_bias": vision["qkv_bias"],
        "attention_dropout": vision["attention_dropout"],
        "hidden_act": vision["hidden_act"],
        "hidden_dropout_prob": vision["dropout"],
        "hidden_size": vision["hidden_size"],
        "image_size": vision["image_size"],
        "intermediate_size": vision["intermediate_size"],
        "layer_norm_eps": vision["layer_norm_eps"],
        "layer_scale_init_value": vision["initializer_factor"],
        "norm_type": vision["norm_type"],
        "num_attention_heads": vision["num_attention_heads"],
        "num_channels": vision["num_channels"],
        "num_hidden_layers": vision["num_hidden_layers"],
        "patch_size": vision["patch_size"],
        "projection_dropout": vision["dropout"],
        "use_mean_pooling": True,  # that is: no norm after the last layer
        "use_qk_norm": vision["qk_normalization"],
    }
