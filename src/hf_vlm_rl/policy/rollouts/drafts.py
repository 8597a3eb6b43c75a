"""What earlier completions of a prompt say comes next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch

from ...processing.images.lru import ByteBoundedCache
from ..row_images import RowImages
from ..sharing.share import keys_of_rows

# Bound of the ids that are kept, a million; and the most completions that are kept of a prompt.
KEPT_BYTES = 4_000_000
KEPT_COMPLETIONS = 16

# How many of the last tokens say what comes next: the longest that was seen before.
CONTEXTS = (6, 2, 1)

# As if a token that was never seen had followed so often, too: what was seen once may not come again.
UNSEEN = 0.5

# In the place of tokens before a completion.
START = -1

# What `generate` may be given of a prompt beside its images, which are known by then.
OF_A_PROMPT = frozenset({"attention_mask", "input_ids", "mm_token_type_ids", "token_type_ids"})

# What tells the prompts of the `generate` that runs in this thread apart, if anything does.
_keys: ContextVar[list[bytes] | None] = ContextVar("hf_vlm_rl_prompt_keys", default=None)


def prompt_keys(
    backbone: Any, kwargs: Mapping[str, Any], rows: Sequence[RowImages] | None
) -> list[bytes] | None:
    """What tells the prompts of a batch apart, padding aside: ids, and the content of their images.

    Args:
        backbone: A policy's backbone.
        kwargs: The arguments of `generate`, located (see `locate.locate`).
        rows: The images of each row; None where nobody knows.

    Returns:
        One key a row; None where something else belongs to a prompt, such as a video's pixels.
    """
    tensors = (name for name, value in kwargs.items() if isinstance(value, torch.Tensor))
    ids, mask = kwargs.get("input_ids"), kwargs.get("attention_mask")
    if rows is None or ids is None or not OF_A_PROMPT.issuperset(tensors):
        return None
    if mask is not None and (not isinstance(mask, torch.Tensor) or mask.shape != ids.shape):
        return None
    keys = keys_of_rows(backbone, ids, rows)
    seen = torch.ones_like(keys) if mask is None else mask.cpu()
    return [row[visible.bool()].numpy().tobytes() for row, visible in zip(keys, seen, strict=True)]


@contextmanager
def prompts_known(keys: list[bytes] | None) -> Iterator[None]:
    """The `generate` of this thread inside the block has the prompts of these keys, in this order."""
    token = _keys.set(keys)
    try:
        yield
    finally:
        _keys.reset(token)


def keys_for(rows: int) -> list[bytes] | None:
    """The keys of the rows of this thread's `generate`, each prompt's rows behind each other; or None."""
    keys = _keys.get()
    if not keys or rows % len(keys):
        return None
    return [key for key in keys for _ in range(rows // len(keys))]


class PastCompletions:
    """The newest completions of the prompts that were sampled last.

    Threads may share it; a copy begins empty.

    Args:
        limit_bytes: Bound of their ids, four bytes each; prompts that were not sampled for longest go first.
    """

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._kept: ByteBoundedCache[bytes, tuple[np.ndarray, ...]] = ByteBoundedCache(limit_bytes, _nbytes)

    @property
    def nbytes(self) -> int:
        """Size of the ids that are kept, in bytes."""
        return self._kept.nbytes

    def of(self, prompt: bytes) -> list[list[int]]:
        """The completions of a prompt, oldest first."""
        return [completion.tolist() for completion in self._kept.get(prompt) or ()]

    def add(self, prompt: bytes, completions: Iterable[Sequence[int]]) -> None:
        """Keep completions of a prompt, and its newest ones alone."""
        newest = [np.array(completion, dtype=np.int32) for completion in completions]
        kept = (*(self._kept.get(prompt) or ()), *newest)[-KEPT_COMPLETIONS:]
        self._kept.discard(prompt)
        self._kept.put(prompt, kept)


class Continuations:
    """Which tokens followed which, in completions of one prompt: as often as each was seen."""

    def __init__(self, completions: Iterable[Sequence[int]] = ()) -> None:
        self._seen: dict[tuple[int, ...], dict[int, int]] = {}
        for completion in completions:
            for length in range(len(completion)):
                self.add(completion[max(0, length - CONTEXTS[0]) : length], completion[length])

    def add(self, before: Sequence[int], token: int) -> None:
        """Count a token behind those of a completion that come before it."""
        for context in _contexts(before):
            counts = self._seen.setdefault(context, {})
            counts[token] = counts.get(token, 0) + 1

    def draft(self, before: Sequence[int], most: int, least: float) -> list[tuple[int, float]]:
        """The likeliest tokens to follow, each behind the one before it.

        Args:
            before: A completion's tokens so far.
            most: Tokens at most.
            least: The smallest chance that the draft is right up to a token, by what was counted.

        Returns:
            Each token, and the chance that it is right if those before it are.
        """
        tail, chance = list(before[-CONTEXTS[0] :]), 1.0
        found: list[tuple[int, float]] = []
        while len(found) < most:
            counts = next(filter(None, map(self._seen.get, _contexts(tail))), None)
            if counts is None:
                break
            token = max(counts, key=counts.__getitem__)
            share = counts[token] / (sum(counts.values()) + UNSEEN)
            chance *= share
            if chance < least:
                break
            found.append((token, share))
            tail.append(token)
        return found


def _contexts(before: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The last tokens, more of them first; before the first of a completion comes its prompt."""
    for length in CONTEXTS:
        yield (START,) * (length - len(before)) + tuple(before[-length:])


def _nbytes(completions: tuple[np.ndarray, ...]) -> int:
    return sum(completion.nbytes for completion in completions)
