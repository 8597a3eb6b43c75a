"""The way for decoders that nobody has looked at: distinct prompts fill a cache, and all rows continue it.

The stock decoder runs twice, with a stock cache in between whose states keep their gradients. Every token
stays in its column, so that whatever a decoder makes of columns and padding, it makes of them here, too.
It takes more memory and time than one packed row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from .cut_masks import later_masks, prompt_masks
from .layout import Layout
from .states import keep_states
from .token_inputs import take_tokens
from .tree import FEWEST
from .visibility import AHEAD, UnknownInput, looks_ahead


@dataclass(frozen=True)
class Cut:
    """How a batch of B x T tokens is cut into prompts and what follows them.

    Attributes:
        column: The first column of what follows.
        first: (U,) a row of each distinct prompt.
        prompt: (B,) which of them each row begins with.
        shape: (B, T).
    """

    column: int
    first: torch.Tensor
    prompt: torch.Tensor
    shape: tuple[int, int]

    @property
    def computed(self) -> int:
        """Tokens that the decoder computes, padding included."""
        rows, columns = self.shape
        return len(self.first) * self.column + rows * (columns - self.column)

    @property
    def levels(self) -> int:
        """The most prefixes that a row has behind each other."""
        return 1

    @property
    def saved(self) -> float:
        """Share of the batch's B x T tokens that are not computed, in [0, 1)."""
        return 1 - self.computed / (self.shape[0] * self.shape[1])

    def fits(self, positions: torch.Tensor, mask: torch.Tensor) -> bool:
        """Whether rows of one prompt have the same positions in it.

        Args:
            positions: (..., B, T) explicit positions, on the cut's device.
            mask: (B, T) bool, the real tokens.
        """
        columns = slice(0, self.column)
        rows = positions.expand(*positions.shape[:-2], *self.shape)[..., columns]
        taken, real = rows[..., self.first[self.prompt], :], mask[:, columns]
        return torch.equal(taken[..., real], rows[..., real])

    def to(self, device: torch.device) -> "Cut":
        """The cut with its tensors on `device`."""
        return Cut(self.column, self.first.to(device), self.prompt.to(device), self.shape)


def find_cut(layout: Layout, keys: torch.Tensor, mask: torch.Tensor, joined: torch.Tensor) -> Cut:
    """Cut a batch where the shortest prefix that rows have in common ends.

    Args:
        layout: Of the batch. A cache is filled once, so prefixes behind these are not shared.
        keys: (B, T); this and the others as `find_layout` takes them.
        mask: (B, T).
        joined: (B, T).
    """
    starts = mask.int().argmax(dim=1)
    columns = mask.shape[1]
    prefixes = [span.edge for span in layout.spans if span.before is None and span.edge.below]
    ends = [int(starts[list(prefix.rows)].min()) + prefix.end for prefix in prefixes]
    column = min([columns - FEWEST, *ends])
    while column > 0 and bool(joined[:, column].any()):
        column -= 1
    seen = mask[:, :column].long()
    heads = torch.cat([keys[:, :column] * seen, seen], dim=1)
    _, prompt = torch.unique(heads, dim=0, return_inverse=True)
    first = torch.stack([(prompt == number).nonzero()[0, 0] for number in range(int(prompt.max()) + 1)])
    return Cut(column, first, prompt, (len(mask), columns))


def run_on_cache(decoder: nn.Module, forward: Callable, cut: Cut, kwargs: dict[str, Any]) -> Any:
    """A decoder's output for a batch.

    Args:
        decoder: The text decoder.
        forward: Its stock forward.
        cut: How the batch is cut.
        kwargs: Its arguments.

    Returns:
        The stock output, without a cache.

    Raises:
        UnknownInput: If a mask cannot be cut, or layers would run again without their cache.
    """
    mask = kwargs.pop("attention_mask", None)
    explicit = isinstance(mask, torch.Tensor) and (mask.ndim == 4 or not bool(mask.all()))
    if any(map(looks_ahead, decoder.modules())) and not explicit:
        raise UnknownInput(AHEAD, lasting=False)
    seen = prompt_masks(mask, cut.column, cut.first, cut.prompt)
    if decoder.training and any(getattr(part, "gradient_checkpointing", False) for part in decoder.modules()):
        # Layers that run again in the backward pass get no cache.
        raise UnknownInput("gradient checkpointing runs layers without a cache", lasting=False)
    rows, columns = cut.shape
    flat = torch.arange(rows * columns, device=cut.first.device).view(rows, columns)
    cache: Any = _differentiable_cache(decoder.config)

    def run(source: torch.Tensor, seen: Any) -> Any:
        inputs = take_tokens(cut.shape, source, kwargs) | {"past_key_values": cache, "use_cache": True}
        return forward(decoder, **inputs | {"attention_mask": seen})

    prompts = run(flat[cut.first, : cut.column], seen)
    cache.reorder_cache(cut.prompt)
    output = run(flat[:, cut.column :], later_masks(mask, cut.column, cut.shape, cache))
    hidden = prompts.last_hidden_state.index_select(0, cut.prompt)
    output.last_hidden_state = torch.cat([hidden, output.last_hidden_state], dim=1)
    output.past_key_values = None
    return output


def _differentiable_cache(config: Any) -> DynamicCache:
    """A stock cache whose layers change nothing in place."""
    cache = DynamicCache(config=config)
    for layer in cache.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            keep_states(layer)
    return cache
