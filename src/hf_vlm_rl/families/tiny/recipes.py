"""Which recipe makes which `config.model_type`."""

from collections.abc import Callable

from . import llava, qwen, siglip, tiled
from .parts import Recipe

_RECIPES: dict[str, Callable[[], Recipe]] = {
    "internvl": tiled.internvl,
    "qwen2_vl": qwen.qwen2_vl,
    "qwen2_5_vl": qwen.qwen2_5_vl,
    "qwen3_vl": qwen.qwen3_vl,
    "gemma3": siglip.gemma3,
    "llava": llava.llava,
    "llava_next": llava.llava_next,
    "llava_onevision": llava.llava_onevision,
    "idefics3": tiled.idefics3,
    "smolvlm": tiled.smolvlm,
    "mistral3": siglip.mistral3,
    "paligemma": siglip.paligemma,
}

FAMILIES: tuple[str, ...] = tuple(_RECIPES)


def recipe(model_type: str) -> Recipe:
    """The configuration and processor of the tiny checkpoint of `model_type`, one of `FAMILIES`."""
    return _RECIPES[model_type]()
