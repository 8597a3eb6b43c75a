"""Tokenizers trained on the spot, byte-level and sentencepiece-like, with special tokens."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import GemmaTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

# Qwen2's own split: letters, single digits, punctuation, line ends, spaces.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEXT = """\
What is in this image? Describe the image in one sentence. The image shows a red square on a white
table. How many objects are there in the picture? There are 3 objects: a cup of coffee, a cat and a
small rocket. Which digit is written in the image? The digit is 7. Answer with a single word, yes
or no. No, it is not. The user asks a question and the assistant answers it. You are a helpful
assistant. Please think step by step. First image, second image, third image; what is the
difference between the two images? They are the same. 1 + 2 = 3, 4 * 5 = 20, 9 - 6 = 3, 8 / 2 = 4;
10, 11, 12, 2024 and 65536 are numbers. (See "page 42"!) A woman in an orange suit smiles at the
camera. The sky is dark and full of bright stars and galaxies. <answer>blue</answer> <think>The cat
looks to the left, so the answer is left.</think> {"colour": "green"} Is the cat on the left or on
the right? I don't know; it's hard to say. We'll see what's there at 50% zoom. Give the position
[12, 34] of the motorcycle & its wheel #2. The total cost is $15.99 @ 8:30 - not 7:45.
"""


def _train(
    tokenizer: Tokenizer, size: int, alphabet: Sequence[str]
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), show_progress=False)
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    merges = [(left, right) for left, right in pairs]
    return model["vocab"], merges


@lru_cache
def _byte_pairs(size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _byte_split()
    return _train(tokenizer, size, sorted(pre_tokenizers.ByteLevel.alphabet()))


def _byte_split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


@lru_cache
def _piece_pairs(size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Pieces in order of id and their merges, with spaces written as sentencepiece writes them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("▁", behavior="merged_with_next"),
            pre_tokenizers.Split(Regex(r"▁?[A-Za-z]+|▁?[0-9]|\n|▁|[^▁\n0-9A-Za-z]+"), behavior="isolated"),
        ]
    )
    vocab, merges = _train(tokenizer, size, ["▁", "\n", *map(chr, range(33, 127))])
    return sorted(vocab, key=vocab.__getitem__), merges


def _special(words: Sequence[str]) -> list[AddedToken]:
    return [AddedToken(word, special=True, normalized=False) for word in words]


def qwen_tokenizer(special: Sequence[str], named: Mapping[str, str], **kwargs: Any) -> Qwen2Tokenizer:
    """Qwen2's byte-level tokenizer; `special` words get the highest ids, in their order."""
    vocab, merges = _byte_pairs(400)
    tokenizer = Qwen2Tokenizer(
        vocab=dict(vocab),
        merges=list(merges),  # type: ignore[arg-type]  # upstream takes pairs, too
        unk_token=None,  # type: ignore[arg-type]  # as the published tokenizers have it
        extra_special_tokens=dict(named),
        **kwargs,
    )
    tokenizer.add_tokens(_special(special), special_tokens=True)
    return tokenizer


def byte_tokenizer(
    special: Sequence[str], named: Mapping[str, str], **kwargs: Any
) -> PreTrainedTokenizerFast:
    """The generic fast class around a byte-level BPE (Llama 3, Mistral's tekken, SmolLM)."""
    vocab, merges = _byte_pairs(400)
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = _byte_split()
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(_special(special))
    return PreTrainedTokenizerFast(tokenizer_object=backend, extra_special_tokens=dict(named), **kwargs)


def _piece_vocab(special: Sequence[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    pieces, merges = _piece_pairs(300)
    words = [*special, *(f"<0x{value:02X}>" for value in range(256)), *pieces]
    return {word: number for number, word in enumerate(words)}, merges


def llama_tokenizer(
    special: Sequence[str], named: Mapping[str, str], **kwargs: Any
) -> PreTrainedTokenizerFast:
    """Llama 2's layout in the generic fast class: a space first, bytes for unknown letters."""
    vocab, merges = _piece_vocab(special)
    backend = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(_special(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, extra_special_tokens=dict(named), unk_token="<unk>", **kwargs
    )


def gemma_tokenizer(special: Sequence[str], named: Mapping[str, str], **kwargs: Any) -> GemmaTokenizer:
    """Gemma's own class: pieces with bytes for unknown letters and no space before the text."""
    vocab, merges = _piece_vocab(special)
    tokenizer = GemmaTokenizer(
        vocab=vocab,
        merges=list(merges),  # type: ignore[arg-type]  # upstream takes pairs, too
        extra_special_tokens=dict(named),
        **kwargs,
    )
    tokenizer.add_tokens(_special(special), special_tokens=True)
    return tokenizer
