"""Recipes of the twelve families: configurations and processors made of the data in `recipes.yaml`."""

import copy
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import transformers
import yaml
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, ProcessorMixin
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from . import templates
from .tokens import byte_tokenizer, gemma_tokenizer, llama_tokenizer, qwen_tokenizer

_TOKENIZERS: dict[str, Callable[..., PreTrainedTokenizerBase]] = {
    "byte": byte_tokenizer,
    "gemma": gemma_tokenizer,
    "llama": llama_tokenizer,
    "qwen": qwen_tokenizer,
}
_TEMPLATES = {
    "internvl": templates.INTERNVL,
    "qwen2_vl": templates.QWEN2_VL,
    "qwen2_5_vl": templates.QWEN2_VL,
    "qwen3_vl": templates.QWEN3_VL,
    "gemma3": templates.GEMMA3,
    "llava": templates.LLAVA,
    "llava_next": templates.LLAVA_NEXT,
    "llava_onevision": templates.ONEVISION,
    "idefics3": templates.IDEFICS,
    "smolvlm": templates.IDEFICS,
    "mistral3": templates.MISTRAL3,
    "paligemma": templates.PALIGEMMA,
}

FAMILIES: tuple[str, ...] = tuple(_TEMPLATES)


@dataclass(frozen=True)
class Recipe:
    """A configuration, its native processor, and the ids that end an answer, eos first."""

    config: PreTrainedConfig
    processor: ProcessorMixin
    stop_ids: tuple[int, ...]
    # Whether to save in the layout of the original checkpoint, as `save_pretrained` does by default.
    original_format: bool = True
    # Whether the model sees only the first image of a row.
    one_image: bool = False


def recipe(model_type: str) -> Recipe:
    """The configuration and processor of the tiny checkpoint of `model_type`, one of `FAMILIES`."""
    data = _rows()[model_type]
    words = dict(data["tokenizer"])
    kind, special, named = words.pop("kind"), list(_flat(words.pop("words"))), words.pop("named", {})
    tokenizer = _TOKENIZERS[kind](special, named, **words)
    parts = {name: _made(data[name]) for name in ("image_processor", "video_processor") if name in data}
    template = _TEMPLATES[model_type]
    processor = _made(data["processor"], **parts, tokenizer=tokenizer, chat_template=template)
    config = _resolved(data["config"], tokenizer)  # only now: PaliGemma's processor adds words
    of_words = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    config["text_config"] = of_words | config["text_config"]
    # By name, not through AutoConfig: `register()` may have pointed the Auto classes to policies.
    config_class = getattr(transformers, CONFIG_MAPPING_NAMES[model_type])
    return Recipe(config_class(**config), processor, ids(tokenizer, *data["stop"]))


def ids(tokenizer: PreTrainedTokenizerBase, *words: str) -> tuple[int, ...]:
    """Ids of words that must be in the vocabulary as they are."""
    vocab = tokenizer.get_vocab()
    return tuple(vocab[word] for word in words)


@functools.cache
def _rows() -> Mapping[str, Any]:
    return yaml.safe_load(resources.files(__package__).joinpath("recipes.yaml").read_text())["families"]


def _flat(words: Iterable[Any]) -> Iterator[str]:
    for word in words:
        yield from [word] if isinstance(word, str) else _flat(word)


def _made(row: Mapping[str, Any], **parts: Any) -> Any:
    """An object of the class that a row names, with the row's settings."""
    settings = copy.deepcopy(dict(row))
    return getattr(transformers, settings.pop("class"))(**settings, **parts)


def _resolved(value: Any, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Data with numbers in the place of `id(<word>)` and `rows()`."""
    if isinstance(value, dict):
        return {name: _resolved(inner, tokenizer) for name, inner in value.items()}
    if isinstance(value, list):
        return [_resolved(inner, tokenizer) for inner in value]
    if value == "rows()":
        return -(-len(tokenizer) // 8) * 8
    word = re.fullmatch(r"id\((.+)\)", value) if isinstance(value, str) else None
    return value if word is None else ids(tokenizer, word[1])[0]
