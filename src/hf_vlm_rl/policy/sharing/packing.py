"""What attention and recurrent modules must know about the packed rows of one forward."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..report import Refused
from ..transfer import upload
from .layout import Layout, Span
from .tree import FEWEST
from .visibility import DenseVisibility, FunctionVisibility, PackedMask, Visibility

# The first step runs the edges that begin rows, the last step those that end rows.
FIRST, LAST = (0,), (2,)


@dataclass(frozen=True)
class Run:
    """Sequences on which a recurrent module runs in one call.

    Attributes:
        tokens: (R, L) packed positions; padding has some real token's.
        mask: (R, L) long, 0 for padding; None if there is none.
        states: (R,) number of the sequence that each of these continues, counted over all earlier runs; None
            if they begin anew.
        last: Whether no later run continues these.
    """

    tokens: torch.Tensor
    mask: torch.Tensor | None
    states: torch.Tensor | None
    last: bool


@dataclass(frozen=True)
class Runs:
    """How a module that reads from left to right runs on a packed sequence: by `runs`, one after another.

    `place` (S,) is the index of each packed token in the flattened and concatenated runs.
    """

    runs: tuple[Run, ...]
    place: torch.Tensor


class Packing:
    """How the rows of one forward are packed, as the modules of a decoder get it.

    `layout` is on the decoder's device, and `mask`, (B or 1, 1, T, T), the backbone's one for all layers;
    None if each layer gets its own.
    """

    def __init__(self, layout: Layout, mask: torch.Tensor | None = None):
        self.layout = layout
        self._of_all_layers = None if mask is None else DenseVisibility(layout, mask)
        self._by_mask: dict[PackedMask, Visibility] = {}

    def visibility(self, mask: Any) -> Visibility:
        """Who sees whom in the layers that get a mask. Layers with the same mask share one `Visibility`.

        Raises:
            Refused: If it is no mask of this packed sequence.
        """
        if self._of_all_layers is not None:
            return self._of_all_layers
        if isinstance(mask, Visibility):
            return mask
        tokens = len(self.layout.source)
        if not isinstance(mask, PackedMask) or mask.lengths != (tokens, tokens):
            raise Refused(
                "the decoder gives its attention another mask than that of the packed row", lasting=True
            )
        if mask not in self._by_mask:
            self._by_mask[mask] = FunctionVisibility(self.layout, mask.function)
        return self._by_mask[mask]

    @cached_property
    def runs(self) -> Runs:
        """How recurrent modules run on the packed rows."""
        return _runs(self.layout)


def _runs(layout: Layout) -> Runs:
    """Runs along the tree, from the edges that begin rows to the edges that end them.

    If others continue an edge, its run must leave the state of its last token, and padding changes a state
    that is not zero. So the first edges are padded on the left, the last ones on the right, and between them
    only edges of one depth and length run together.
    """
    steps: dict[tuple[int, ...], list[Span]] = {}
    for span in layout.spans:
        steps.setdefault(_step(span), []).append(span)
    place = torch.empty(len(layout.source), dtype=torch.long)
    states: dict[Span, int] = {}
    tables: list[torch.Tensor | None] = []
    begin = 0
    for step, spans in sorted(steps.items()):
        starts = torch.tensor([span.start for span in spans])[:, None]
        lengths = torch.tensor([span.edge.length for span in spans])[:, None]
        width = max(int(lengths.max()), FEWEST)
        columns = torch.arange(width) - (width - lengths if step == FIRST else 0)
        mask = (columns >= 0) & (columns < lengths)
        tokens = starts + columns.clamp(min=0).minimum(lengths - 1)
        place[tokens[mask]] = begin + mask.flatten().nonzero().flatten()
        begin += tokens.numel()
        before = torch.tensor([states[span.before] for span in spans if span.before], dtype=torch.long)
        tables += [tokens, None if bool(mask.all()) else mask.long(), None if step == FIRST else before]
        states.update(zip(spans, range(len(states), len(states) + len(spans)), strict=True))
    place, *tensors = upload([place, *tables], layout.source.device)
    last = [step == LAST for step in sorted(steps)]
    return Runs(tuple(map(Run, tensors[::3], tensors[1::3], tensors[2::3], last)), place)


def _step(span: Span) -> tuple[int, ...]:
    """A key: edges with equal keys run together, and smaller keys run earlier."""
    if span.before is None:
        return FIRST
    return (1, span.depth, span.edge.length) if span.edge.below else LAST
