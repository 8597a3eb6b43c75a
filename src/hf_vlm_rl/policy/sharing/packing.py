"""What the modules of a decoder are given for one forward on packed rows."""

from dataclasses import dataclass
from functools import cached_property

import torch

from .layout import Layout
from .visibility import Visibility

# A step of one token takes kernels that change states in place, which no gradient comes through.
FEWEST = 2


@dataclass(frozen=True)
class Runs:
    """Sequences to run a module on, one behind the other in the packed sequence.

    Attributes:
        tokens: (R, L) packed positions; padding has some real token's.
        mask: (R, L) long, 0 for padding.
        place: (tokens,) of each token in the flattened runs, in packed order.
    """

    tokens: torch.Tensor
    mask: torch.Tensor
    place: torch.Tensor


@dataclass(frozen=True)
class TwoRuns:
    """How a packed sequence is run in two steps.

    Attributes:
        first: Prefixes, and rows without one; padded on the left, so that states are those of the last token.
        second: Suffixes, padded on the right; None if there are none.
        prefix: (R of `second`,) the run of `first` that each suffix continues.
        place: (S,) of each packed token in the flattened first runs and second runs.
    """

    first: Runs
    second: Runs | None
    prefix: torch.Tensor
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
    def runs(self) -> TwoRuns:
        """How recurrent modules run on it."""
        return _two_runs(self.layout)


def _two_runs(layout: Layout) -> TwoRuns:
    heads, tails, prefix = [], [], []
    for group in layout.groups:
        begin = group.start + group.prefix
        if group.prefix:
            heads.append((group.start, group.prefix))
        for length in group.suffixes:
            if group.prefix:
                tails.append((begin, length))
                prefix.append(len(heads) - 1)
            else:
                heads.append((begin, length))
            begin += length
    device = layout.source.device
    first = _runs(heads, left=True, device=device)
    second = _runs(tails, left=False, device=device) if tails else None
    place = torch.empty(len(layout.source), dtype=torch.long, device=device)
    place[first.tokens[first.mask.bool()]] = first.place
    if second is not None:
        place[second.tokens[second.mask.bool()]] = second.place + first.tokens.numel()
    return TwoRuns(first, second, torch.tensor(prefix, dtype=torch.long, device=device), place)


def _runs(spans: list[tuple[int, int]], left: bool, device: torch.device) -> Runs:
    begins, lengths = torch.tensor(spans, device=device).T[..., None]
    width = max(*(length for _, length in spans), FEWEST)
    columns = torch.arange(width, device=device) - (width - lengths if left else 0)
    mask = (columns >= 0) & (columns < lengths)
    tokens = begins + columns.clamp(min=0).minimum(lengths - 1)
    return Runs(tokens, mask.long(), mask.flatten().nonzero().flatten())
