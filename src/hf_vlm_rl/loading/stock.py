"""Transformers' own class and processor for a family."""

from collections.abc import Mapping
from typing import Any

import transformers
from transformers import AutoProcessor
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from ..errors import UnsupportedModelError
from ..families import VLMFamily
from ..families.registry import family_for
from .formats import ORIGINAL_FORMATS


def load_processor(source: str, hub: Mapping[str, Any], options: Mapping[str, int] | None = None) -> Any:
    """A checkpoint's native processor, padding on the left.

    Args:
        source: Hub id or directory.
        hub: `HUB_ARGUMENTS`.
        options: Image options under the image processor's own names.
    """
    options = options or {}
    processor = AutoProcessor.from_pretrained(
        source, padding_side="left", truncation_side="left", **options, **hub
    )
    for name in options:
        # Every part got them; the tokenizer would save them and repeat them with each call.
        processor.tokenizer.init_kwargs.pop(name, None)
    return processor


def family_of(config: Mapping[str, Any], source: str) -> VLMFamily:
    """The family of a checkpoint, in transformers' format or an original one.

    Args:
        config: Its config.json.
        source: Its id or path, for the message.

    Raises:
        UnsupportedModelError: If no family describes it.
    """
    model_type = config["model_type"]
    original = ORIGINAL_FORMATS.get(model_type)
    try:
        return family_for(original.family if original else model_type, source)
    except UnsupportedModelError as error:
        text = model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        if not text or model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
            raise
        raise UnsupportedModelError(
            f"{source!r} has model_type {model_type!r}, which no family describes: it is a language model "
            "without vision. Expected a vision-language model; TRL's trainers take others as they are."
        ) from error


def stock_class(names: Mapping[str, str], family: VLMFamily) -> type:
    """The class that transformers has for a family in one of its name tables."""
    # By name, not through AutoModel: `register()` may have pointed the Auto classes to us.
    if family.model_type not in names:
        raise UnsupportedModelError(
            f"transformers {transformers.__version__} has no image-text-to-text model of type "
            f"{family.model_type!r}."
        )
    # transformers loads its classes by name, on first use.
    return getattr(transformers, names[family.model_type])
