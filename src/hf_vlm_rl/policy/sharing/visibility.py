"""Who sees whom in a packed sequence: what the layout says, and what the stock model's masks say.

Layers differ: some look back a window only, others see whole images. Their masks are evaluated only for the
pairs of tokens that packed attention computes, so no mask of all rows or of the whole sequence is stored.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import causal_mask_function

from ..report import Refused
from .layout import Call, Layout
from .tree import Edge

# Why rows of a decoder for prefixes (PaliGemma's) do not share in a batch without padding and token types.
AHEAD = "tokens see what follows them where no mask forbids it"


class Visibility:
    """Which packed tokens see which. In this class, each sees all that comes before it in its rows.

    Attributes:
        layout: How the rows are packed.
        explicit: Whether stock attention gets a mask; if not, a module's `is_causal` says what tokens see.
        causal: Whether tokens are known to see all that lies before them in their rows, and nothing else.
    """

    explicit, causal = False, True

    def __init__(self, layout: Layout):
        self.layout = layout

    @cached_property
    def masks(self) -> list[torch.Tensor | None]:
        """Who sees whom in each of the layout's calls.

        Each is a mask (tokens, tokens before and tokens), bool or added to the scores, or None: each token
        sees all that lies before it.
        """
        return [self._mask_of(call) for call in self.layout.calls]

    def seen(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Which packed positions `queries` see which `keys`, two tensors that broadcast.

        Returns:
            Bool, of the shape to which they broadcast, or numbers that are added to the scores.
        """
        return (keys <= queries) & (queries < self.layout.until[keys])

    def _mask_of(self, call: Call) -> torch.Tensor | None:
        # Without a mask, the tokens before are queries as well: that is cheaper if they are fewer.
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
        """Where the edge of a key is that of the query, or comes before it."""
        return (self.layout.since[keys] <= queries) & (queries < self.layout.until[keys])


class FunctionVisibility(Visibility):
    """Asks a mask function of transformers, which knows a token by its place in its row.

    The function is one of (batch, head, query, key) indices, as `transformers.masking_utils` combines them.
    """

    def __init__(self, layout: Layout, function: Callable):
        super().__init__(layout)
        self._function = function
        self.explicit = layout.padded  # transformers then makes a mask
        self.causal = function is causal_mask_function

    def seen(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Which queries see which keys, by their places in the row; see `Visibility.seen`."""
        if self.causal:
            return super().seen(queries, keys)
        zero = queries.new_zeros(())
        allowed = self._function(zero, zero, self.layout.positions[queries], self.layout.positions[keys])
        return allowed & self._in_a_row(queries, keys)


class DenseVisibility(Visibility):
    """Reads the backbone's mask of the whole batch: (B or 1, 1, T, T), bool or added to the scores.

    Raises:
        Refused: If the mask has another form, or rows differ in what their common prefix sees.
    """

    explicit, causal = True, False

    def __init__(self, layout: Layout, mask: torch.Tensor):
        super().__init__(layout)
        rows, columns = layout.shape
        if mask.shape[1:] != (1, columns, columns) or len(mask) not in (1, rows):
            raise Refused(f"the backbone makes an attention mask of shape {tuple(mask.shape)}", lasting=True)
        self._mask = mask[:, 0].expand(rows, -1, -1)
        lengths = {row: span.edge.end for span in layout.spans for row in span.edge.rows}  # last edges win
        differ = [differs for span in layout.spans for differs in self._differ(span.edge, lengths)]
        if differ and bool(torch.stack(differ).any()):  # one question to the device
            raise Refused("tokens of the common prefix see what follows it")

    def _differ(self, edge: Edge, lengths: dict[int, int]) -> Iterator[torch.Tensor]:
        """() bool: whether tokens of an edge see other things in other rows, or see what follows the edge."""
        first = None
        for row in edge.rows if edge.below else ():
            start = self.layout.starts[row]
            tokens = slice(start + edge.begin, start + edge.end)
            seen = self._mask[row, tokens, start : start + lengths[row]]
            within, beyond = seen[:, : edge.end], seen[:, edge.end :]
            first = within if first is None else first
            yield sees(beyond).any()
            yield (within != first).any()

    def seen(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """What the mask says of queries and keys; see `Visibility.seen`."""
        columns = self.layout.shape[1]
        tokens = self.layout.source[queries]
        row, column = tokens // columns, tokens % columns
        start = column - self.layout.positions[queries]
        # Keys of other rows may stand beyond the end of the query's row; `within` excludes them.
        allowed = self._mask[row, column, (start + self.layout.positions[keys]).clamp(0, columns - 1)]
        within = self._in_a_row(queries, keys)
        if allowed.dtype == torch.bool:
            return allowed & within
        return allowed.masked_fill(~within, torch.finfo(allowed.dtype).min)


def sees(mask: torch.Tensor) -> torch.Tensor:
    """Which pairs a mask lets see each other, whether it is bool or added to the scores."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def is_attention(module: nn.Module) -> bool:
    """Whether a module of a decoder attends to tokens."""
    # transformers' attention functions read these two attributes; neither layers nor MLPs have both, nor have
    # Inkling 2's residual modules, which attend to layers.
    return hasattr(module, "layer_idx") and hasattr(module, "is_causal")


def looks_ahead(module: nn.Module) -> bool:
    """Whether a module is an attention that lets tokens see what follows them where it gets no mask."""
    return is_attention(module) and module.is_causal is False


@dataclass(frozen=True, eq=False)
class PackedMask:
    """What our mask interface returns for a packed sequence: the function that would fill a mask.

    It takes (batch, head, query, key) indices, without padding; `lengths` are those that the mask would have.
    """

    function: Callable
    lengths: tuple[int, int]


def packed_mask(
    q_length: int, kv_length: int, mask_function: Callable, use_vmap: bool = False, **kwargs: Any
) -> PackedMask:
    """A mask interface of transformers, for decoders that run on a packed sequence.

    Both lengths are S, the packed tokens. `mask_function` is one of indices, without padding; with `use_vmap`
    it is the model's own, so its indices may mean anything.

    Raises:
        Refused: If the function may not be one of places in a row.
    """
    if use_vmap:
        raise Refused("the decoder makes an attention mask of its own", lasting=True)
    return PackedMask(mask_function, (q_length, kv_length))
