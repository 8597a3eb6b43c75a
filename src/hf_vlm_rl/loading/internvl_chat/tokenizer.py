"""The checkpoint's tokenizer, built from its data files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import generate_merges

from ..._install import pip_install
from ...errors import CheckpointError, UnsupportedModelError
from .files import Files, read_json
from .templates import IMAGE_TOKEN, Conversation

if TYPE_CHECKING:
    # Protobuf makes its classes when it is imported; the types are in a package of stubs that has no others.
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

IMAGE_TOKENS = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": IMAGE_TOKEN}
# The processor wants a token for videos, which the original format has not: frames are images there.
# A new one would need a new row of the embedding, so it gets the first of these that the vocabulary has.
VIDEO_TOKENS = ("<|video_pad|>", "<|plugin|>", "</img>")
BYTE_LEVEL = ("Qwen2Tokenizer", "Qwen2TokenizerFast")
SENTENCEPIECE = ("InternLM2Tokenizer", "InternLM2TokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast")
GENERIC = ("PreTrainedTokenizerFast",)
SPACE = "▁"  # how SentencePiece writes a space
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")


def make_tokenizer(files: Files, conversation: Conversation, vocab_size: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer for `vocab_size` rows of the embedding; a turn's last token becomes `eos_token`.

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
        return _byte_level(files, texts)
    if kind in (*BYTE_LEVEL, *SENTENCEPIECE, *GENERIC) and serialized is not None:
        return _from_json(serialized)
    if kind in SENTENCEPIECE:
        model = read_sentencepiece(files.path("tokenizer.model"))
        # SentencePiece finds these in a text before it merges anything.
        for index, piece in enumerate(model.pieces):
            if piece.type == piece.USER_DEFINED:
                added.setdefault(index, AddedToken(piece.piece, normalized=False, special=False))
        return sentencepiece(model, texts, settings.get("legacy", True))
    if kind in (*BYTE_LEVEL, *GENERIC):
        files.path("tokenizer.json")
    raise UnsupportedModelError(
        f"tokenizer_config.json of {files.source!r} has the tokenizer_class {kind!r}. Known: "
        f"{', '.join((*BYTE_LEVEL, *SENTENCEPIECE, *GENERIC))}."
    )


def _byte_level(files: Files, added: Mapping[int, str]) -> Tokenizer:
    """Qwen2's byte-level BPE, from vocab.json and merges.txt; vocab.json may list added tokens, too.

    Raises:
        CheckpointError: If a file is missing, damaged or truncated.
    """
    vocab_file, merges_file = files.path("vocab.json"), files.path("merges.txt")
    vocabulary = read_json(vocab_file)
    lines = merges_file.read_text(encoding="utf-8").splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    for number, merge in enumerate(merges, start=1):
        if len(merge) != 2 or any(part not in vocabulary for part in (*merge, "".join(merge))):
            raise CheckpointError(
                f"{merges_file}: merge {number} ({' '.join(merge)!r}) does not join two tokens of "
                f"{vocab_file.name} into a third. One of the files is damaged or truncated; download both "
                "again."
            )
    # A merges file that was cut at a line's end is still valid, but tokenizes otherwise than the original.
    pieces = {"".join(merge) for merge in merges} | set(added.values())
    unreachable = [token for token in vocabulary if len(token) > 1 and token not in pieces]
    if unreachable:
        raise CheckpointError(
            f"{merges_file} has {len(merges)} merges and makes no {unreachable[0]!r}, nor "
            f"{len(unreachable) - 1} other tokens of {vocab_file.name}. It is truncated; download it again."
        )
    # transformers knows how Qwen2 splits text; the backend is taken without its added tokens.
    pairs: Any = merges  # as the backend takes them; transformers declares strings
    qwen = Qwen2Tokenizer(vocab=vocabulary, merges=pairs).backend_tokenizer
    return _without_added_tokens(qwen.to_str())


def _from_json(path: Path) -> Tokenizer:
    """A tokenizer.json.

    Raises:
        CheckpointError: If the file is damaged or truncated.
    """
    read_json(path)
    try:
        return _without_added_tokens(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exceptions
        raise CheckpointError(f"{path} is no tokenizer file ({error}). Download it again.") from error


def read_sentencepiece(path: Path) -> "ModelProto":
    """A SentencePiece `tokenizer.model`.

    Raises:
        CheckpointError: If the file is damaged or truncated, or needs something that cannot be
            rebuilt exactly.
        ImportError: If the extra `sentencepiece` is not installed.
    """
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # as above
    except ImportError as error:
        raise ImportError(
            f"{path} is a SentencePiece model, which needs sentencepiece and protobuf to be read: "
            f"{pip_install('sentencepiece')}, or add a tokenizer.json to the checkpoint."
        ) from error
    try:
        model = ModelProto.FromString(path.read_bytes())
    except DecodeError as error:
        raise CheckpointError(
            f"{path} is no complete SentencePiece model ({error}). Download it again."
        ) from error
    # The settings follow the pieces: a file that was cut between two fields lacks them.
    if not model.pieces or not model.HasField("trainer_spec") or not model.HasField("normalizer_spec"):
        raise CheckpointError(
            f"{path} ends after {len(model.pieces)} pieces, before the model's settings: it is truncated. "
            "Download it again."
        )
    expected = {
        "a byte-pair model": model.trainer_spec.model_type == model.trainer_spec.BPE,
        "no character map": not model.normalizer_spec.precompiled_charsmap,
        "remove_extra_whitespaces off": not model.normalizer_spec.remove_extra_whitespaces,
    }
    if not all(expected.values()):
        lacking = ", ".join(name for name, holds in expected.items() if not holds)
        raise CheckpointError(
            f"{path} is a SentencePiece model of a kind that cannot be rebuilt exactly; expected {lacking}. "
            "Add a tokenizer.json to the checkpoint."
        )
    return model


def sentencepiece(model: "ModelProto", added: Mapping[int, str], legacy_prefix: bool) -> Tokenizer:
    """A SentencePiece byte-pair model as a backend of the `tokenizers` library.

    Added tokens inside the vocabulary take the place of the piece there. If the model asks for a space before
    the text, `legacy_prefix` puts one before every stretch of text between special tokens, as Llama's first
    tokenizer did, and not only at the start.
    """
    texts = [added.get(index, piece.piece) for index, piece in enumerate(model.pieces)]
    vocabulary = {text: index for index, text in enumerate(texts)}
    # Only these are made by merging; a better score is merged earlier.
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == piece.NORMAL}
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            generate_merges(vocabulary, scores),
            unk_token=texts[model.trainer_spec.unk_id],
            fuse_unk=True,
            byte_fallback=model.trainer_spec.byte_fallback,
        )
    )
    prefix = model.normalizer_spec.add_dummy_prefix
    if not prefix:
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    elif legacy_prefix:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    trimmed = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *trimmed]
    )
    return tokenizer


def _without_added_tokens(serialized: str) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(json.loads(serialized) | {"added_tokens": []}))


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

    In `decode`, the original classes skip tokens that are special by name. With `by_flag`, tokens that
    the file flags as special are skipped, too, as the fast tokenizers do.
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
