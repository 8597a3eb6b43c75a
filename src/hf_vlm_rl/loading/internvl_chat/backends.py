"""Backends of the `tokenizers` library, from vocabulary files; still without added tokens."""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import Qwen2Tokenizer

from ...errors import CheckpointError
from .files import Files, read_json
from .sentencepiece import Kind, SentencePieceModel, read_model

SPACE = "▁"  # how SentencePiece writes a space


def byte_level(files: Files, added: Mapping[int, str]) -> Tokenizer:
    """Qwen2's byte-level BPE, from vocab.json and merges.txt.

    Args:
        files: The checkpoint.
        added: Added tokens by id; some exports list them in vocab.json as well.

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
    # A merges file that was cut at a line's end would tokenize, only otherwise than the original.
    made = {"".join(merge) for merge in merges} | set(added.values())
    unreachable = [token for token in vocabulary if len(token) > 1 and token not in made]
    if unreachable:
        raise CheckpointError(
            f"{merges_file} has {len(merges)} merges and makes no {unreachable[0]!r}, nor "
            f"{len(unreachable) - 1} other tokens of {vocab_file.name}. It is truncated; download it again."
        )
    # transformers knows how Qwen2 splits text; the backend is taken without its added tokens.
    qwen = Qwen2Tokenizer(vocab=vocabulary, merges=merges).backend_tokenizer
    return _without_added_tokens(qwen.to_str())


def from_json(path: Path) -> Tokenizer:
    """A tokenizer.json.

    Raises:
        CheckpointError: If the file is damaged or truncated.
    """
    read_json(path)
    try:
        return _without_added_tokens(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exceptions
        raise CheckpointError(f"{path} is no tokenizer file ({error}). Download it again.") from error


def sentencepiece(path: Path, added: Mapping[int, str], legacy_prefix: bool) -> Tokenizer:
    """A SentencePiece byte-pair model, rebuilt.

    Args:
        path: tokenizer.model.
        added: Added tokens by id. Those inside the vocabulary take the place of the piece there.
        legacy_prefix: Where the model asks for a space before the text: before every stretch of text
            between special tokens, as Llama's first tokenizer did, and not only at the start.

    Raises:
        CheckpointError: If the file is damaged or truncated.
    """
    model = read_model(path)
    texts = [added.get(index, piece.text) for index, piece in enumerate(model.pieces)]
    vocabulary = {text: index for index, text in enumerate(texts)}
    unknown = next(
        (text for text, piece in zip(texts, model.pieces, strict=True) if piece.kind is Kind.UNKNOWN), None
    )
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            _merges(model, vocabulary),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=model.byte_fallback,
        )
    )
    trimmed = [decoders.Strip(" ", 1, 0)] if model.dummy_prefix else []
    if not model.dummy_prefix:
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    elif legacy_prefix:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *trimmed]
    )
    return tokenizer


def user_defined(path: Path) -> dict[int, str]:
    """Pieces that SentencePiece finds in a text before it merges anything, by id."""
    pieces = enumerate(read_model(path).pieces)
    return {index: piece.text for index, piece in pieces if piece.kind is Kind.USER_DEFINED}


def _merges(model: SentencePieceModel, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others; better pieces first, as SentencePiece merges."""
    normal = [piece for piece in model.pieces if piece.kind is Kind.NORMAL]
    merges = []
    for piece in sorted(normal, key=lambda piece: -piece.score):
        splits = ((piece.text[:cut], piece.text[cut:]) for cut in range(1, len(piece.text)))
        merges += [pair for pair in splits if pair[0] in vocabulary and pair[1] in vocabulary]
    return merges


def _without_added_tokens(serialized: str) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(json.loads(serialized) | {"added_tokens": []}))
