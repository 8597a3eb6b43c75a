"""What the modules of a decoder are given for one forward on packed rows."""

from dataclasses import dataclass
from functools import cached_property

import torch

from .layout import Layout, Span
from .tree import FEWEST
from .visibility import Visibility

# The edges that no others precede, and those that none follow.
FIRST, LAST = (0,), (2,)


@dataclass(frozen=True)
class Run:
    """Sequences on which a module runs at once.

    Attributes:
        tokens: (R, L) packed positions; padding has some real token's.
        mask: (R, L) long, 0 for padding; None if there is none.
        states: (R,) which of the sequences of earlier runs, in their order, each of these continues; None if
            they begin anew.
        last: Whether no later run continues these.
    """

    tokens: torch.Tensor
    mask: torch.Tensor | None
    states: torch.Tensor | None
    last: bool


@dataclass(frozen=True)
class Runs:
    """How a module that reads from left to right runs on a packed sequence.

    Attributes:
        runs: In order.
        place: (S,) of each packed token in the flattened runs, one behind the other.
    """

    runs: tuple[Run, ...]
    place: torch.Tensor


class Packing:
    """How the rows of one forward are packed, as the modules of a decoder get it.

    Args:
        layout: On the decoder's device.
        visibility: Who sees whom in all layers, where the backbone says so; None if each layer's mask does.
    """

    def __init__(self, layout: Layout, visibility: Visibility | None = None):
        self.layout = layout
        self.visibility = visibility

    @cached_property
    def runs(self) -> Runs:
        """How recurrent modules run on it."""
        return _runs(self.layout)


def _runs(layout: Layout) -> Runs:
    """Along the tree, from the first edges of all rows to the last.

    States behind an edge that others continue must be those of its last token. Padding changes states that
    are not zero. So the first edges are padded on the left, the last ones on the right, and between them only
    edges of one depth and length run together.
    """
    steps: dict[tuple[int, ...], list[Span]] = {}
    for span in layout.spans:
        steps.setdefault(_step(span), []).append(span)
    device = layout.source.device
    place = torch.empty(len(layout.source), dtype=torch.long)
    states: dict[Span, int] = {}
    runs, begin = [], 0
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
        runs.append(
            Run(
                tokens=tokens.to(device),
                mask=None if bool(mask.all()) else mask.long().to(device),
                states=None if step == FIRST else before.to(device),
                last=step == LAST,
            )
        )
        states.update(zip(spans, range(len(states), len(states) + len(spans)), strict=True))
    return Runs(tuple(runs), place.to(device))


def _step(span: Span) -> tuple[int, ...]:
    """Which edges run together, in the order in which they do."""
    if span.before is None:
        return FIRST
    return (1, span.depth, span.edge.length) if span.edge.below else LAST
