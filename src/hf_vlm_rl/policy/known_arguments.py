"""Which arguments of a forward some module of the model reads.

Stock forwards hand unknown arguments from layer to layer, and no error comes if no module reads them. If a
trainer says by such an argument which tokens see each other, every log-prob is wrong without a word.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from transformers.modeling_flash_attention_utils import FlashAttentionKwargs
from transformers.utils import TransformersKwargs

from ..families.derive_parts import FEATURES
from .arguments import ATTENTION, TRIE, says_something
from .images.locate import CARRIERS
from .images.spare_types import TYPES
from .sharing.layout import LAYOUT

# What any model of transformers takes, beside the names in its signatures; older TRL passes `cache_position`.
OF_ANY_MODEL = frozenset(
    {
        *TransformersKwargs.__annotations__,
        *FlashAttentionKwargs.__annotations__,
        *CARRIERS,
        *TYPES,
        *ATTENTION,
        *TRIE,
        LAYOUT,
        "logits_to_keep",
        "mm_encoder_outputs",
        "return_dict",
        "use_cache",
    }
)


def known_arguments(model: Any, backbone: Any, decoder: Any, video_features: str) -> frozenset[str]:
    """Names of the arguments that the forward of a stock backbone may get.

    The model may hand on arguments that it reads itself (Gemma 4: labels). `video_features` is the name of
    the backbone's method that makes features of videos, if it has one.
    """
    # Models without videos lack the second.
    readers = [getattr(backbone, name, None) for name in (FEATURES, video_features)]
    # Decoders may be plain modules, which record nothing.
    recorded = {f"output_{name}" for name in getattr(decoder, "can_record_outputs", ())}
    return OF_ANY_MODEL.union(
        recorded, *map(_names, (model.forward, backbone.forward, decoder.forward, *readers))
    )


def check_arguments(backbone: Any, known: frozenset[str], kwargs: Mapping[str, Any]) -> None:
    """Refuse an argument that is neither None nor False and that no module of the model reads.

    Raises:
        TypeError: If there is one.
    """
    unread = (name for name in kwargs.keys() - known if says_something(kwargs[name]))
    if unknown := sorted(unread):
        raise TypeError(
            f"{type(backbone).__name__} got {unknown}, which nobody in it reads: its forward would go on "
            "without a word. Expected arguments of this model's own forward; leave these out, or turn off "
            "what passes them."
        )


def _names(function: Callable[..., Any] | None) -> frozenset[str]:
    if function is None:
        return frozenset()
    parameters = inspect.signature(function).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in named)
