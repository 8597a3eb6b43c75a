"""The checkpoint's tokenizer, built from its data files."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from ...errors import CheckpointError, UnsupportedModelError
from . import backends
from .files import Files
from .templates import IMAGE_TOKEN, Conversation

IMAGE_TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": IMAGE_TOKEN,
}
# The processor wants a token for videos, which the original format has not: frames are images there.
# A new one would need a new row of the embedding, so the first of these that the vocabulary has.
VIDEO_TOKENS = ("<|video_pad|>", "<|plugin|>", "</img>")
BYTE_LEVEL = ("Qwen2Tokenizer", "Qwen2TokenizerFast")
SENTENCEPIECE = ("InternLM2Tokenizer", "InternLM2TokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast")
GENERIC = ("PreTrainedTokenizerFast",)
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")


def make_tokenizer(files: Files, conversation: Conversation, vocab_size: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer.

    Args:
        files: The checkpoint.
        conversation: Its template; the token that ends an answer becomes `eos_token`.
        vocab_size: Rows of the embedding.

    Raises:
        CheckpointError: If a file is missing, damaged or truncated, or the ids do not fit.
        UnsupportedModelError: If the tokenizer's class is unknown.
    """
    settings = files.json("special_tokens_map.json") | files.json("tokenizer_config.json")
    kind = settings.get("tokenizer_class")
    special = _special_tokens(settings)
    added = _added_tokens(files, settings, special, by_flag=kind in GENERIC)
    backend = _backend(files, settings, kind, added)
    for index, token in sorted(added.items()):
        (backend.add_special_tokens if token.special else backend.add_tokens)([token])
        if backend.token_to_id(token.content) != index:
            raise CheckpointError(
                f"The tokenizer of {files.source!r} gives {token.content!r} the id "
                f"{backend.token_to_id(token.content)}, but tokenizer_config.json says {index}: its "
                "vocabulary file is truncated or belongs to another checkpoint. Download them again."
            )
    _check_ids(backend, files, conversation, vocab_size)
    video = next(token for token in VIDEO_TOKENS if backend.token_to_id(token) is not None)
    names = {name: special[name] for name in _NAMED if name in special} | {"eos_token": conversation.stop}
    options = {key: settings[key] for key in ("model_max_length", "add_bos_token") if key in settings}
    if kind in SENTENCEPIECE and files.find("tokenizer.json") is None:
        options.setdefault("add_bos_token", True)  # the default of these classes
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        truncation_side="left",
        model_specific_special_tokens=IMAGE_TOKENS | {"video_token": video},
        **names,
        **options,
    )


def _backend(
    files: Files, settings: Mapping[str, Any], kind: str | None, added: dict[int, AddedToken]
) -> Tokenizer:
    texts = {index: token.content for index, token in added.items()}
    serialized = files.find("tokenizer.json")
    if kind in BYTE_LEVEL and files.find("vocab.json") is not None:
        return backends.byte_level(files, texts)
    if kind in (*BYTE_LEVEL, *SENTENCEPIECE, *GENERIC) and serialized is not None:
        return backends.from_json(serialized)
    if kind in SENTENCEPIECE:
        path = files.path("tokenizer.model")
        for index, text in backends.user_defined(path).items():
            added.setdefault(index, AddedToken(text, normalized=False, special=False))
        return backends.sentencepiece(path, texts, settings.get("legacy", True))
    if kind in (*BYTE_LEVEL, *GENERIC):
        files.path("tokenizer.json")
    raise UnsupportedModelError(
        f"tokenizer_config.json of {files.source!r} has the tokenizer_class {kind!r}. Known: "
        f"{', '.join((*BYTE_LEVEL, *SENTENCEPIECE, *GENERIC))}."
    )


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Names of the special tokens, and under "additional" those without a name."""
    text = {name: settings[name] for name in _NAMED if settings.get(name) is not None}
    text = {name: value["content"] if isinstance(value, dict) else value for name, value in text.items()}
    additional = settings.get("additional_special_tokens") or []
    return text | {
        "additional": [value["content"] if isinstance(value, dict) else value for value in additional]
    }


def _added_tokens(
    files: Files, settings: Mapping[str, Any], special: Mapping[str, Any], by_flag: bool
) -> dict[int, AddedToken]:
    """Added tokens by id.

    The original classes skip in `decode` what is a special token by name; `by_flag` also what is
    flagged as one in the file, as the fast tokenizers do.
    """
    names = {*special["additional"], *(value for key, value in special.items() if key != "additional")}
    entries = settings.get("added_tokens_decoder") or {
        index: {"content": content} for content, index in files.json("added_tokens.json").items()
    }
    added = {}
    for index, entry in entries.items():
        flags = {flag: entry.get(flag, False) for flag in _FLAGS}
        is_special = entry["content"] in names or (by_flag and entry.get("special", False))
        added[int(index)] = AddedToken(entry["content"], special=is_special, **flags)
    return added


def _check_ids(backend: Tokenizer, files: Files, conversation: Conversation, vocab_size: int) -> None:
    known = backend.get_vocab(with_added_tokens=True)
    for token in (*IMAGE_TOKENS.values(), conversation.stop):
        if token not in known:
            raise CheckpointError(
                f"The tokenizer of {files.source!r} has no {token!r}, which this model's prompts need. "
                "added_tokens.json or tokenizer_config.json is truncated; download them again."
            )
    token, index = max(known.items(), key=lambda entry: entry[1])
    if index >= vocab_size:
        raise CheckpointError(
            f"The tokenizer of {files.source!r} has {token!r} at id {index}, but llm_config.vocab_size is "
            f"{vocab_size}. The tokenizer's files and config.json belong to different checkpoints."
        )
