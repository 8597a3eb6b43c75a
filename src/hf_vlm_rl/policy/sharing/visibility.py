"""Who sees whom in a packed sequence: what the layout says, and what the stock model's masks say.

Layers differ: some look back a window only, others see whole images. What their masks say is asked for the
pairs of tokens that packed attention computes, so that no mask of all rows or of the whole sequence is made.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import causal_mask_function

from .layout import Group, Layout

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
    def parts(self) -> list[tuple[slice, slice, torch.Tensor | None]]:
        """Of every call of attention: its tokens, the prefix before them, and who sees whom.

        That is a mask (tokens, prefix + tokens), bool or added to the scores, or None: all that comes before.
        """
        return list(self._parts())

    def _parts(self) -> Iterator[tuple[slice, slice, torch.Tensor | None]]:
        nothing = slice(0, 0)
        for group in self.layout.groups:
            prefix = slice(group.start, group.start + group.prefix)
            if group.prefix:
                yield prefix, nothing, self._visible(prefix, nothing, None)
            for chunk in group.chunks:
                tokens = slice(chunk.begin, chunk.end)
                yield tokens, prefix, self._visible(tokens, prefix, chunk.row)

    def _visible(self, tokens: slice, prefix: slice, row: torch.Tensor | None) -> torch.Tensor | None:
        """Who sees whom; `row` says which row each token belongs to, None that all belong to one."""
        if row is None and prefix.start == prefix.stop:
            return None
        device = self.layout.source.device
        count = tokens.stop - tokens.start
        own = torch.ones(count, count, dtype=torch.bool, device=device).tril()
        return _with_prefix(prefix, own if row is None else own & (row[:, None] == row))


def _with_prefix(prefix: slice, own: torch.Tensor) -> torch.Tensor:
    """(tokens, prefix + tokens): what tokens see of a prefix, all of it, and of each other."""
    return torch.cat([own.new_ones(len(own), prefix.stop - prefix.start), own], dim=1)


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

    def _visible(self, tokens: slice, prefix: slice, row: torch.Tensor | None) -> torch.Tensor | None:
        if self._function is causal_mask_function:
            return super()._visible(tokens, prefix, row)
        places = self.layout.positions
        queries, keys = places[tokens, None], torch.cat([places[prefix], places[tokens]])[None]
        zero = places.new_zeros(())
        allowed = self._function(zero, zero, queries, keys).expand(len(queries), keys.shape[1])
        return allowed if row is None else allowed & _with_prefix(prefix, row[:, None] == row)


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
        for group in layout.groups:
            self._check_prefix(group)

    @property
    def explicit(self) -> bool:
        """Whether stock attention gets a mask: it gets this one."""
        return True

    def _check_prefix(self, group: Group) -> None:
        """What a prefix sees must be the same in every row, and nothing that follows it."""
        columns = self.layout.shape[1]
        begin, first = group.start + group.prefix, None
        for row, suffix in zip(group.rows, group.suffixes, strict=True):
            # A row's tokens lie side by side, and those of its suffix come last.
            end = int(self.layout.source[begin + suffix - 1]) - row * columns + 1
            begin += suffix
            start = end - suffix - group.prefix
            seen = self._mask[row, start : start + group.prefix, start:end]
            within, beyond = seen[:, : group.prefix], seen[:, group.prefix :]
            first = within if first is None else first
            if bool(sees(beyond).any()) or not torch.equal(within, first):
                raise UnknownInput("tokens of the common prefix see what follows it", lasting=False)

    def _visible(self, tokens: slice, prefix: slice, row: torch.Tensor | None) -> torch.Tensor | None:
        layout, columns = self.layout, self.layout.shape[1]
        batch_row, column = layout.source[tokens] // columns, layout.source[tokens] % columns
        places = torch.cat([layout.positions[prefix], layout.positions[tokens]])
        # Keys in other rows of the chunk may lie outside this one.
        keys = ((column - layout.positions[tokens])[:, None] + places).clamp(0, columns - 1)
        allowed = self._mask[batch_row[:, None], column[:, None], keys]
        if row is None:
            return allowed
        within = _with_prefix(prefix, row[:, None] == row)
        if allowed.dtype == torch.bool:
            return allowed & within
        return allowed.masked_fill(~within, torch.finfo(allowed.dtype).min)


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
