"""Which recipe makes which `config.model_type`: twelve by hand, the others by outline."""

from collections.abc import Callable

from . import llava, qwen, siglip, tiled
from .every import OUTLINES, outlined
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
EVERY: tuple[str, ...] = (*FAMILIES, *OUTLINES)
# Those of which no policy can be made, and why.
WITHOUT_POLICY: dict[str, str] = {
    name: outline.no_policy for name, outline in OUTLINES.items() if outline.no_policy
}


def recipe(model_type: str) -> Recipe:
    """The configuration and processor of the tiny checkpoint of `model_type`."""
    return _RECIPES[model_type]() if model_type in _RECIPES else outlined(model_type)
