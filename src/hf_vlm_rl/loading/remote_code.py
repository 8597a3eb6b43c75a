"""Models whose classes come with the checkpoint: transformers imports them, and only on request.

`auto_map` in config.json names the files. They run on this machine, so nothing is imported without
`trust_remote_code=True`.
"""

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from ..errors import UnsupportedModelError
from .location import file_arguments

# Names that an auto_map may have for the chat model, the most specific first.
AUTO_MODELS = ("AutoModelForImageTextToText", "AutoModelForMultimodalLM", "AutoModelForCausalLM")

# Config class to model class, for each checkpoint whose code this process has imported.
_imported: dict[type[PreTrainedConfig], type[PreTrainedModel]] = {}


def has_code(stored: Mapping[str, Any]) -> bool:
    """Whether a checkpoint's config.json names classes of its own."""
    return "AutoConfig" in (stored.get("auto_map") or {})


def load_remote_config(stored: Mapping[str, Any], source: str, hub: Mapping[str, Any]) -> PreTrainedConfig:
    """The config of a checkpoint with code; its model class is imported as well.

    Raises:
        UnsupportedModelError: If `hub` does not say that its code is trusted, or no class in it is a chat
            model.
    """
    named = stored["auto_map"]
    if not hub.get("trust_remote_code"):
        raise UnsupportedModelError(
            f"{source!r} has model_type {stored['model_type']!r}, which transformers does not have, and "
            f"brings code of its own ({named['AutoConfig']}). Expected trust_remote_code=True, with which "
            "that code runs on this machine: read it first, and fix the revision."
        )
    name = next((name for name in AUTO_MODELS if name in named), None)
    if name is None:
        raise UnsupportedModelError(
            f"The auto_map of {source!r} names {sorted(named)}. Expected one of {AUTO_MODELS}, the model "
            "with its language-model head."
        )
    located = file_arguments(hub)
    config = AutoConfig.from_pretrained(source, trust_remote_code=True, **located)
    model_class: Any = get_class_from_dynamic_module(named[name], source, **located)
    # As transformers' Auto classes do: saved policies then bring the code along.
    model_class.register_for_auto_class(name)
    _imported[type(config)] = model_class
    return config


def imported_class(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    """The model class that was imported with a config; None for configs of transformers."""
    return _imported.get(type(config))
