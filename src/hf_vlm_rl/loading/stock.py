"""Transformers' own class and processor for a family."""

from collections.abc import Mapping
from typing import Any

import transformers
from transformers import AutoProcessor

from ..errors import UnsupportedModelError
from ..families import VLMFamily


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


def stock_class(names: Mapping[str, str], family: VLMFamily) -> type:
    """The class that transformers has for a family in one of its name tables."""
    # By name, not through AutoModel: `register()` may have pointed the Auto classes to us.
    if family.model_type not in names:
        raise UnsupportedModelError(
            f"transformers {transformers.__version__} has no image-text-to-text model of type "
            f"{family.model_type!r}."
        )
    return getattr(transformers, names[family.model_type])
