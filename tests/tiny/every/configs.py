"""A class's default config, made tiny, with the ids of a tokenizer's words."""

from collections.abc import Iterator, Mapping
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedTokenizerBase

from .outline import Id, Outline, VocabularySize
from .shrink import shrink

_BOOKKEEPING = ("transformers_version", "_name_or_path", "architectures", "dtype", "id2label", "label2id")
_SUFFIXES = ("_token_id", "_token_index", "_id")


def tiny_config(model_type: str, outline: Outline, tokenizer: PreTrainedTokenizerBase) -> PreTrainedConfig:
    """The config of `model_type` for a tiny model whose words are those of `tokenizer`."""
    config_class = CONFIG_MAPPING[model_type]
    vocabulary = -(-len(tokenizer) // 8) * 8
    fields = _without_bookkeeping(shrink(config_class().to_dict(), vocabulary))
    _set_ids(fields, _ids(outline, tokenizer))
    _merge(fields, _resolved(outline.config, tokenizer, vocabulary))
    config = config_class(**fields)
    _check_ids(model_type, config.to_dict(), len(tokenizer))
    return config


def _without_bookkeeping(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_bookkeeping(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in _BOOKKEEPING
    }


def _ids(outline: Outline, tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    """The value of each id field that the tokenizer decides."""
    vocabulary = tokenizer.get_vocab()
    ids = {role + suffix: vocabulary[word] for role, word in outline.words.items() for suffix in _SUFFIXES}
    ends = ("bos_token_id", "eos_token_id", "pad_token_id")
    return ids | {name: getattr(tokenizer, name) for name in ends}


def _set_ids(fields: dict[str, Any], ids: Mapping[str, int | None]) -> None:
    for name, value in fields.items():
        if isinstance(value, dict) and name.endswith("_config"):
            _set_ids(value, ids)
        elif name in ids:
            fields[name] = ids[name]


def _resolved(value: Any, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> Any:
    """`value` with numbers in the place of `Id` and `VocabularySize`."""
    if isinstance(value, Id):
        return tokenizer.get_vocab()[value.word]
    if isinstance(value, VocabularySize):
        return vocabulary + value.more
    if isinstance(value, Mapping):
        return {name: _resolved(inner, tokenizer, vocabulary) for name, inner in value.items()}
    if isinstance(value, list):
        return [_resolved(inner, tokenizer, vocabulary) for inner in value]
    return value


def _merge(fields: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Set `changes` in `fields`, config by config; anything else is replaced as a whole."""
    for name, value in changes.items():
        if name.endswith("_config") and isinstance(fields.get(name), dict):
            _merge(fields[name], value)
        else:
            fields[name] = value


def _check_ids(model_type: str, fields: Mapping[str, Any], words: int) -> None:
    for name, value in _id_fields(fields):
        if value >= words:
            raise ValueError(
                f"{model_type}: {name} is {value}, but the tokenizer has {words} words; "
                "name its word in the outline"
            )


def _id_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _id_fields(value)
        elif isinstance(value, int) and str(name).endswith(("_token_id", "_token_index")):
            yield name, value
