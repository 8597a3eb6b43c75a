"""Who sees whom in a packed sequence: what the layout says, and what the stock model's masks say.

Layers differ: some look back a window only, others see whole images. What their masks say is asked for the
pairs of tokens that packed attention computes, so that no mask of all rows or of the whole sequence is made.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import causal_mask_function

from .flex import Blocks, find_blocks
from .layout import Call, Layout
from .tree import Edge

# Why rows of a decoder for prefixes (PaliGemma's) do not share in a batch without padding and token types.
AHEAD = "tokens see what follows them where no mask forbids it"


class UnknownInput(Exception):
    """A backbone or decoder does what nobody knows how to pack; nothing was computed.

    Attributes:
        lasting: Whether all its forwards do; else only those that are like this one.
    """

    def __init__(self, reason: str, lasting: bool = True):
        super().__init__(reason)
        self.lasting = lasting


class Visibility:
    """What the packed tokens see, of themselves and of each other. This one: all that comes before them.

    Args:
        layout: How the rows are packed.
    """

    def __init__(self, layout: Layout):
        self.layout = layout

    @property
    def explicit(self) -> bool:
        """Whether stock attention gets a mask; without one, a module's `is_causal` says what tokens see."""
        return False

    @cached_property
    def masks(self) -> list[torch.Tensor | None]:
        """Who sees whom in each of the layout's calls.

        That is a mask (tokens, tokens before and tokens), bool or added to the scores, or None: each token
        sees all that lies before it.
        """
        return [self._mask_of(call) for call in self.layout.calls]

    @property
    def causal(self) -> bool:
        """Whether tokens see all that lies before them in their rows, and nothing else."""
        return True

    @property
    def additive(self) -> bool:
        """Whether masks are numbers that are added to the scores."""
        return False

    @cached_property
    def blocks(self) -> Blocks:
        """Who sees whom, by blocks, unless it is `additive`. Made once for all layers that attend alike."""
        return find_blocks(self.layout, self.seen)

    def seen(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Which queries see which keys.

        Args:
            queries: Packed positions, which broadcast with those of the keys.
            keys: Packed positions.

        Returns:
            Bool, of the shape to which they broadcast, or numbers that are added to the scores.
        """
        return (keys <= queries) & (queries < self.layout.until[keys])

    def _mask_of(self, call: Call) -> torch.Tensor | None:
        # Without a mask, attention is computed for the tokens before, too: cheaper where these are fewer.
        fewer = sum(each.length for each in self._before(call)) < call.length
        if self.causal and call.of_one_edge and fewer:
            return None
        return self.seen(*self._places(call))

    def _places(self, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
        """Packed positions of a call: (tokens, 1) and (1, tokens before and tokens)."""
        packed = torch.arange(len(self.layout.source), device=self.layout.source.device)
        queries, *before = (
            packed[each.start : each.start + each.length] for each in (call, *self._before(call))
        )
        return queries[:, None], torch.cat([*before, queries])[None]

    def _before(self, call: Call) -> list[Call]:
        return [self.layout.calls[number] for number in call.before]

    def _in_a_row(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Where the keys are of the queries' edges or of edges before these."""
        return (self.layout.since[keys] <= queries) & (queries < self.layout.until[keys])


class FunctionVisibility(Visibility):
    """What a mask function of transformers says of a row's tokens, which it knows by their place in it.

    Args:
        layout: How the rows are packed.
        function: Of (batch, head, query, key) indices, as `transformers.masking_utils` combines them.
    """

    def __init__(self, layout: Layout, function: Callable):
        super().__init__(layout)
        self._function = function

    @property
    def explicit(self) -> bool:
        """Whether stock attention gets a mask: transformers makes one where a batch has padding."""
        return self.layout.padded

    @property
    def causal(self) -> bool:
        """Whether the function says so."""
        return self._function is causal_mask_function

    def seen(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Which queries see which keys, by their places in the row; see `Visibility.seen`."""
        if self.causal:
            return super().seen(queries, keys)
        zero = queries.new_zeros(())
        allowed = self._function(zero, zero, self.layout.positions[queries], self.layout.positions[keys])
        return allowed & self._in_a_row(queries, keys)


class DenseVisibility(Visibility):
    """What the backbone's own mask of the whole batch says.

    Args:
        layout: How the rows are packed.
        mask: (B or 1, 1, T, T), bool or added to the scores.

    Raises:
        UnknownInput: If the mask has another form, or rows differ in what their common prefix sees.
    """

    def __init__(self, layout: Layout, mask: torch.Tensor):
        super().__init__(layout)
        rows, columns = layout.shape
        if mask.shape[1:] != (1, columns, columns) or len(mask) not in (1, rows):
            raise UnknownInput(f"the backbone makes an attention mask of shape {tuple(mask.shape)}")
        self._mask = mask[:, 0].expand(rows, -1, -1)
        lengths = {row: span.edge.end for span in layout.spans for row in span.edge.rows}  # the last edge's
        for span in layout.spans:
            self._check(span.edge, lengths)

    @property
    def explicit(self) -> bool:
        """Whether stock attention gets a mask: it gets this one."""
        return True

    def _check(self, edge: Edge, lengths: dict[int, int]) -> None:
        """What tokens of several rows see must be the same in each, and nothing that follows their edge."""
        first = None
        for row in edge.rows if edge.below else ():
            start = self.layout.starts[row]
            tokens = slice(start + edge.begin, start + edge.end)
            seen = self._mask[row, tokens, start : start + lengths[row]]
            within, beyond = seen[:, : edge.end], seen[:, edge.end :]
            first = within if first is None else first
            if bool(sees(beyond).any()) or not torch.equal(within, first):
                raise UnknownInput("tokens of the common prefix see what follows it", lasting=False)

    @property
    def causal(self) -> bool:
        """Whether the mask is known to say so: it is not."""
        return False

    @property
    def additive(self) -> bool:
        """Whether the mask is added to the scores."""
        return self._mask.dtype != torch.bool

    def seen(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """What the mask says of queries and keys; see `Visibility.seen`."""
        columns = self.layout.shape[1]
        tokens = self.layout.source[queries]
        row, column = tokens // columns, tokens % columns
        start = column - self.layout.positions[queries]
        # Keys in other rows may lie outside the queries' own.
        allowed = self._mask[row, column, (start + self.layout.positions[keys]).clamp(0, columns - 1)]
        within = self._in_a_row(queries, keys)
        if self.additive:
            return allowed.masked_fill(~within, torch.finfo(allowed.dtype).min)
        return allowed & within


def sees(mask: torch.Tensor) -> torch.Tensor:
    """Which pairs a mask lets see each other, whether it is bool or added to the scores."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def looks_ahead(module: nn.Module) -> bool:
    """Whether an attention module lets tokens see what follows them where it gets no mask."""
    return getattr(module, "is_causal", True) is False  # other modules have no such attribute


def packed_mask(
    q_length: int,
    kv_length: int,
    mask_function: Callable,
    config: Any,
    use_vmap: bool = False,
    **kwargs: Any,
) -> Visibility:
    """A mask interface of transformers, for decoders that run on a packed sequence.

    Args:
        q_length: S, the packed tokens.
        kv_length: S.
        mask_function: Of indices, without padding.
        config: The decoder's, which carries the layout.
        use_vmap: The function is the model's own, so its indices may mean anything.
        **kwargs: What the packed sequence has not (padding, a cache) or what concerns dense masks.

    Raises:
        UnknownInput: If the function is not one of places in a row.
    """
    layout = config.shared_prefix
    if use_vmap or q_length != len(layout.source) or kv_length != q_length:
        raise UnknownInput("the decoder makes an attention mask of its own")
    return FunctionVisibility(layout, mask_function)
