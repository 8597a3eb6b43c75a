"""One copy of a prompt's keys and values for all rows that continue it.

The prompt's scores are one matrix product per distinct prompt instead of one per row, and a new
token copies no prompt: the shared part stays where the prefill put it.
"""

from typing import Any

import torch
from torch import nn
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from ..arguments import ATTENTION, require_known
from ..report import Refused
from ..transfer import upload, without_waiting

# Tokens behind the prompt for which a layer has room at first; without room, 512 tokens take 7 % longer.
ROOM = 32


class RowsOfPrompts:
    """Which row continues which prompt. U prompts, B rows, M rows of a prompt at most.

    `prompt` is (B,) on the host, every number in [0, U). `members` (U, M) are the rows of each prompt, padded
    with the first of them; `place` (B,) is where each row stands in the flattened `members`.
    """

    def __init__(self, prompt: torch.Tensor, device: torch.device):
        counts = prompt.bincount()
        order = prompt.argsort(stable=True)
        starts = counts.cumsum(0) - counts
        columns = torch.arange(int(counts.max()))
        inside = columns < counts[:, None]
        place = torch.empty_like(prompt)
        place[order] = inside.flatten().nonzero().flatten()
        self.members, self.place = upload([order[starts[:, None] + columns * inside], place], device)

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """Group (B, heads, n, x) of the rows by prompt: (U, heads, M * n, x)."""
        grouped = rows[self.members]  # (U, M, heads, n, x)
        return grouped.transpose(1, 2).flatten(2, 3)

    def scatter(self, prompts: torch.Tensor) -> torch.Tensor:
        """Return (U, heads, M * n, x), grouped by prompt, to the rows: (B, heads, n, x)."""
        prompt_count, most = self.members.shape
        split = prompts.view(prompt_count, prompts.shape[1], most, -1, prompts.shape[-1])
        return split.transpose(1, 2).flatten(0, 1)[self.place]


class PrefixLayer(DynamicLayer):
    """A layer's keys and values: those of U prompts, (U, heads, P, d), and those that each of B rows adds.

    `keys` and `values` hold what the rows add, and `update` returns them. They are the filled part of larger
    tensors, so that a new token does not copy the earlier ones.
    """

    def __init__(self, prompts: DynamicLayer, rows: RowsOfPrompts):
        super().__init__()
        # transformers types keys as optional: a layer has none before its first tokens. This one has.
        self.prompt_keys: Any = prompts.keys
        self.prompt_values: Any = prompts.values
        self.keys: Any
        self.values: Any
        self.rows = rows
        self._room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add (B, heads, n, d) keys and values of n new tokens; returns all that the rows have added."""
        if key_states.requires_grad or value_states.requires_grad:  # the backward pass needs them unchanged
            self._room = None
            return super().update(key_states, value_states)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        filled = 0 if self.keys.numel() == 0 else self.keys.shape[-2]
        length = filled + key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < length:
            capacity = max(ROOM, length + length // 4)
            self._room = (
                _with_room(self.keys, key_states, capacity),
                _with_room(self.values, value_states, capacity),
            )
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, filled:length] = new
        self.keys, self.values = (room[:, :, :length] for room in self._room)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Tokens of the padded prompt and of what rows have added."""
        return self.prompt_keys.shape[-2] + super().get_seq_length()

    def choose(self, places: torch.Tensor, prompts: torch.Tensor | None, rows: RowsOfPrompts) -> None:
        """Keep the rows at these (b,) places, which continue the prompts at `prompts`; None: all prompts."""
        self.rows, self._room = rows, None
        if prompts is not None:
            self.prompt_keys = self.prompt_keys.index_select(0, prompts.to(self.prompt_keys.device))
            self.prompt_values = self.prompt_values.index_select(0, prompts.to(self.prompt_values.device))
        if self.is_initialized and self.keys.numel():
            self.keys = self.keys.index_select(0, places.to(self.keys.device))
            self.values = self.values.index_select(0, places.to(self.values.device))

    def _refuse(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "This cache shares its prompt between rows and cannot be changed so. "
            "Load the policy with sharing=False for a plain cache."
        )

    reset = crop = reorder_cache = batch_repeat_interleave = batch_select_indices = _refuse


class SharedPrompts(Cache):
    """A cache all of whose layers are `PrefixLayer`; `prompt`, (B,) on the host, is what rows continue."""

    layers: list[Any]

    def __init__(self, layers: list[PrefixLayer], prompt: torch.Tensor):
        stock: list[Any] = [*layers]
        super().__init__(layers=stock)
        self.prompt = prompt

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Keep the rows at these (b,) places, in this order, and the prompts that they continue."""
        prompts, self.prompt = self.prompt[beam_idx.cpu()].unique(return_inverse=True)
        device = self.layers[0].prompt_keys.device
        rows, places = RowsOfPrompts(self.prompt, device), without_waiting(beam_idx, device)
        gone = len(prompts) < len(self.layers[0].prompt_keys)
        chosen = without_waiting(prompts, device) if gone else None
        for layer in self.layers:
            layer.choose(places, chosen, rows)


def share_prompts(cache: DynamicCache, prompt: torch.Tensor) -> Cache:
    """A cache for B rows that reads the keys and values of U distinct, prefilled prompts from one place.

    `prompt` is (B,) on the host, the prompt that each row continues.
    """
    layers: list[Any] = cache.layers
    rows = RowsOfPrompts(prompt, layers[0].keys.device)
    return SharedPrompts([PrefixLayer(layer, rows) for layer in layers], prompt)


def prefix_cache_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    prefix_layer: PrefixLayer,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Exact attention of new tokens to their row's prompt and to what the row has added to it.

    Args:
        module: The attention module, which is not used.
        query: (B, heads, n, d) of the n newest tokens.
        key: (B, key heads, t, d) of all tokens after the prompt.
        value: (B, key heads, t, d).
        attention_mask: What the new tokens see of the row, as the stock decoder made it for the plain cache:
            (B or 1, 1, n, P + t) bool or added to the scores, or (B, P + t); None if they see all that
            comes before them.
        scaling: Of the scores; 1 / sqrt(d) if None.
        dropout: Of the weights; must be 0.
        prefix_layer: The layer's cache.
        **kwargs: What else the stock module passes; `arguments.ATTENTION` has the names that change nothing.

    Returns:
        (B, n, heads, d) and no weights.

    Raises:
        Refused: If the module changes its scores or weights, or makes keys from other values in its cache.
    """
    if dropout:
        raise Refused("the attention module drops weights", lasting=True)
    require_known(kwargs, ATTENTION, "the attention module takes", lasting=True)
    rows, (batch, heads, new, width) = prefix_layer.rows, query.shape
    prompt_keys = prefix_layer.prompt_keys
    if (prompt_keys.shape[1], prompt_keys.shape[3]) != (key.shape[1], key.shape[3]):
        raise Refused("the attention module makes its keys from what the cache has", lasting=True)
    repeats = heads // key.shape[1]
    scale = width**-0.5 if scaling is None else scaling
    # The queries of all heads that share a key head lie in one matrix: (B, key heads, repeats * n, d).
    query = (query * scale).reshape(batch, key.shape[1], repeats * new, width)
    row_scores = query @ key.transpose(2, 3)
    prompt_scores = rows.gather(query) @ prefix_layer.prompt_keys.transpose(2, 3)
    prompt_length = prompt_scores.shape[-1]
    hidden = _hidden(attention_mask, batch, new, prompt_length + key.shape[2], key.device)
    if hidden is not None:
        # A finite number, so that a token that sees nothing gets a mean and not NaN, as in stock attention.
        least = torch.finfo(row_scores.dtype).min
        hidden = hidden.repeat(1, 1, repeats, 1)
        row_scores = row_scores.masked_fill(hidden[..., prompt_length:], least)
        prompt_scores = prompt_scores.masked_fill(rows.gather(hidden[..., :prompt_length]), least)
    weights = torch.cat([prompt_scores, rows.gather(row_scores)], dim=-1).softmax(dim=-1, dtype=torch.float32)
    weights = weights.to(query.dtype)
    out = rows.scatter(weights[..., :prompt_length] @ prefix_layer.prompt_values)
    out = out + rows.scatter(weights[..., prompt_length:]) @ value
    return out.view(batch, heads, new, width).transpose(1, 2), None


def _hidden(
    mask: torch.Tensor | None, batch: int, new: int, length: int, device: torch.device
) -> torch.Tensor | None:
    """(B, 1, n, P + t) bool, what each new token must not see; None if it sees everything.

    Raises:
        NotImplementedError: If the mask has a form that transformers has not passed to attention so far.
    """
    if mask is None and new == 1:
        return None
    ahead = torch.ones(new, length, dtype=torch.bool, device=device).triu(length - new + 1)
    if mask is None:
        hidden = ahead
    elif not isinstance(mask, torch.Tensor) or mask.ndim not in (2, 4):
        raise NotImplementedError(
            f"Got an attention mask of type {type(mask).__name__}; a cache that shares its prompt takes "
            "tensors of two or four dimensions. Load the policy with sharing=False for a plain cache."
        )
    elif mask.ndim == 2:
        hidden = ahead | ~mask[:, None, None, :length].bool()
    else:
        hidden = ~mask if mask.dtype == torch.bool else mask < 0
    return hidden[..., :length].expand(batch, 1, new, length)


def _with_room(filled: torch.Tensor, new: torch.Tensor, capacity: int) -> torch.Tensor:
    """(B, heads, capacity, d) of the dtype and device of `new`, which begins with `filled`."""
    room = new.new_empty(*new.shape[:2], capacity, new.shape[-1])
    if filled.numel():
        room[:, :, : filled.shape[-2]] = filled
    return room
