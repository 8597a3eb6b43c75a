"""`register()`: let a model id be enough where TRL loads models itself.

GRPO, RLOO, DPO and KTO load their reference model from `config._name_or_path` when all weights are
trained (no PEFT) and a KL term needs one; and every trainer takes an id in place of a model. They
pick the class that the checkpoint's config names, which would be the stock one, and it does not
know tickets. After `register()` they get policies, also for checkpoints in an original format, which
transformers alone does not load; `AutoProcessor` then loads the processing class of those.
"""

import copy
import functools
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, AutoProcessor, PreTrainedConfig

from ..compat import require_trl_with_unknown_architectures
from ..policy.trie import reads_tries
from .auto import AutoVLMPolicy
from .formats import ORIGINAL_FORMATS
from .location import file_arguments
from .stock import CHAT_MODELS, config_class

ARCHITECTURE = "AutoVLMPolicy"


@functools.cache
def register() -> None:
    """Make TRL (>= 1.8) load policies for vision-language models, for the rest of this process.

    Uses transformers' public registration calls. From then on `AutoConfig.from_pretrained` gives,
    for vision-language models, a config of the stock kind whose `architectures` begins with a name that
    transformers does not have; TRL then asks `AutoModelForCausalLM`, and that leads here. The stock
    architecture follows in the list: an engine that is started in this process, as vLLM by
    `vllm_mode="colocate"`, takes the first one that it knows (vLLM 0.33; not with
    `vllm_model_impl="transformers"`, which reads the first alone). The stock classes and
    `AutoModelForImageTextToText` go on loading stock models. For checkpoints in an original format there
    is no stock architecture, and no other library loads them in this process: convert them first.

    Raises:
        ImportError: If TRL is older than 1.8.
    """
    require_trl_with_unknown_architectures()
    for model_type in sorted(CHAT_MODELS):
        _register(model_type, _policy_config(config_class(model_type, model_type)))
    for model_type in ORIGINAL_FORMATS:
        original = _original_config(model_type)
        _register(model_type, original)
        AutoProcessor.register(original, _ProcessingClassLoader, exist_ok=True)


def _register(model_type: str, config_class: type) -> None:
    loader = type("PolicyLoader", (_PolicyLoader,), {"config_class": config_class})
    AutoConfig.register(model_type, config_class, exist_ok=True)
    AutoModelForCausalLM.register(config_class, loader, exist_ok=True)


class _PolicyLoader:
    """What `AutoModelForCausalLM` finds for a policy config; loads through `AutoVLMPolicy`."""

    @classmethod
    def from_pretrained(cls, source: str, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        return AutoVLMPolicy.from_pretrained(source, *args, **_settings(config), **kwargs)


def _settings(config: Any) -> dict[str, Any]:
    """Arguments for `AutoVLMPolicy` from the config that led here: the caller's became its attributes."""
    if config is None:
        return {}
    stock_config = copy.deepcopy(config)
    if reads_tries(stock_config._attn_implementation):  # a tower has no trie, and the policy needs none
        stock_config._attn_implementation = None
    stock = type(config).__base__
    if stock is PreTrainedConfig:  # of an original format, whose own config comes from its converter
        chosen = stock_config._attn_implementation
        return {} if chosen is None else {"attn_implementation": chosen}
    stock_config.__class__ = stock
    stock_config.architectures = [name for name in stock_config.architectures if name != ARCHITECTURE]
    vars(stock_config).pop("auto_map", None)
    return {"config": stock_config}


def _policy_config(stock: Any) -> type:
    def from_dict(cls: Any, config_dict: dict, **kwargs: Any) -> Any:
        result = stock.from_dict.__func__(cls, config_dict, **kwargs)
        config = result[0] if isinstance(result, tuple) else result
        stored = [name for name in config.architectures or [] if name != ARCHITECTURE]
        config.architectures = [ARCHITECTURE, *stored]
        config.auto_map = {}  # TRL reads it without checking that it exists.
        return result

    members = {
        "__module__": stock.__module__,
        "__qualname__": stock.__qualname__,
        "from_dict": classmethod(from_dict),
    }
    return type(stock.__name__, (stock,), members)


class _ProcessingClassLoader:
    """What `AutoProcessor` finds for a checkpoint in an original format."""

    @classmethod
    def from_pretrained(cls, source: str, **kwargs: Any) -> Any:
        return AutoVLMPolicy.tokenizer(source, **file_arguments(kwargs)).processing_class


def _original_config(name: str) -> type:
    """A config class that only leads to the loaders above; the policy's own config is of the stock kind."""

    class OriginalConfig(PreTrainedConfig):
        model_type = name

        @classmethod
        def from_dict(cls, config_dict: dict, **kwargs: Any) -> Any:
            return super().from_dict({"architectures": [ARCHITECTURE], "auto_map": {}}, **kwargs)

    return OriginalConfig
