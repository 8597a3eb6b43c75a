"""Where the tokens of a batch lie in the packed sequence.

Rows that begin with the same tokens (and images) are laid out as

    [prefix, suffix of row 1, ..., suffix of row n]

If some of them have more in common, a group stands in place of their suffixes: [prefix, [prefix, suffix,
suffix], suffix]. This is their tree, depth first. S packed tokens stand for the B x T of the batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from ..transfer import upload
from .tree import TOLL, Edge, cheapest_tree

# The decoder's keyword for the layout of a batch.
LAYOUT = "vlm_layout"

# Suffixes that lie side by side share one attention call while together they are at most this share of their
# prefix. A larger call wastes work on pairs of rows that do not see each other; a smaller one copies the
# prefix's keys once more.
TOGETHER = 0.25


@dataclass(frozen=True, eq=False)
class Span:
    """An edge of the tree in the packed sequence.

    Attributes:
        start: Packed position of its first token.
        edge: The edge.
        before: The span that precedes it in its rows, or None.
    """

    start: int
    edge: Edge
    before: "Span | None"

    @property
    def stop(self) -> int:
        """The packed position after its last token."""
        return self.start + self.edge.length

    @cached_property
    def depth(self) -> int:
        """How many spans precede it in its rows."""
        return 0 if self.before is None else self.before.depth + 1


@dataclass(frozen=True)
class Call:
    """Neighbouring tokens that attend in one call, to all that lies before them and to each other.

    Attributes:
        start: Packed position of the first of them.
        length: How many they are.
        before: The numbers of the calls whose tokens lie before all of them in their rows.
        of_one_edge: Whether they follow each other in their rows.
    """

    start: int
    length: int
    before: tuple[int, ...]
    of_one_edge: bool


@dataclass(frozen=True)
class Layout:
    """How a batch of B x T tokens is packed into S.

    Attributes:
        spans: All edges, in packed order.
        calls: Of attention, in packed order.
        source: (S,) index of each packed token in the flattened batch.
        target: (B * T,) packed position of each token of the batch; 0 for padding.
        positions: (S,) position of each packed token in its row, counted without padding.
        since: (S,) packed position of the first token of each token's edge.
        until: (S,) packed position after the last token whose rows contain each token.
        starts: (B,) the column of each row's first token.
        shape: (B, T).
    """

    spans: tuple[Span, ...]
    calls: tuple[Call, ...]
    source: torch.Tensor
    target: torch.Tensor
    positions: torch.Tensor
    since: torch.Tensor
    until: torch.Tensor
    starts: tuple[int, ...]
    shape: tuple[int, int]

    @property
    def computed(self) -> int:
        """Tokens that the decoder computes."""
        return len(self.source)

    @property
    def levels(self) -> int:
        """The longest chain of shared prefixes in one row."""
        return max(span.depth for span in self.spans)

    @property
    def shared(self) -> int:
        """Tokens that are not computed because other rows begin with them."""
        return self._real - self.computed

    @property
    def padded(self) -> bool:
        """Whether the batch has padding."""
        return self._real < self.shape[0] * self.shape[1]

    @property
    def _real(self) -> int:
        """The batch's tokens without padding."""
        return sum(span.edge.length * len(span.edge.rows) for span in self.spans)

    @property
    def saved(self) -> float:
        """Share of the batch's B x T tokens that the packed sequence leaves out, in [0, 1)."""
        return 1 - self.computed / (self.shape[0] * self.shape[1])

    def fits(self, positions: torch.Tensor, mask: torch.Tensor) -> bool:
        """Whether each of the real tokens, `mask` (B, T), has the position of the packed token in its place.

        `positions` are explicit ones, (..., B, T), on the layout's device.
        """
        rows = positions.expand(*positions.shape[:-2], *self.shape).flatten(-2, -1)
        packed = rows.index_select(-1, self.source).index_select(-1, self.target)
        return torch.equal(packed[..., mask.flatten()], rows[..., mask.flatten()])

    def to(self, device: torch.device) -> "Layout":
        """The layout with its tensors on `device`."""
        if device == self.source.device:
            return self
        names = ("source", "target", "positions", "since", "until")
        tensors = upload([getattr(self, name) for name in names], device)
        return replace(self, **dict(zip(names, tensors, strict=True)))


def find_layout(
    keys: torch.Tensor,
    mask: torch.Tensor,
    joined: torch.Tensor | None = None,
    aligned: bool = True,
    toll: float = TOLL,
) -> Layout | None:
    """Find what the rows of a batch have in common and lay it out.

    Args:
        keys: (B, T) on the CPU. Equal numbers mean equal token and, at image tokens, equal image.
        mask: (B, T) bool on the CPU; each row's real tokens must be contiguous.
        joined: (B, T) bool on the CPU: tokens before which no prefix may end.
        aligned: Only rows that begin in the same column share a prefix.
        toll: Tokens that a prefix behind another prefix must save; infinity allows no such prefix.

    Returns:
        The layout, or None if a row is empty or has padding in its middle.
    """
    lengths = mask.sum(dim=1)
    starts = mask.int().argmax(dim=1)
    columns = torch.arange(keys.shape[1])
    inside = (columns >= starts[:, None]) & (columns < (starts + lengths)[:, None])
    if not torch.equal(inside, mask) or int(lengths.min()) == 0:
        return None
    # Flush left, so that rows padded differently compare equal.
    left_aligned = (columns + starts[:, None]).clamp(max=keys.shape[1] - 1)
    keys = torch.where(columns < lengths[:, None], keys.gather(1, left_aligned), torch.iinfo(keys.dtype).min)
    ends = columns.expand_as(keys)
    if joined is not None:
        # For each column, the last one up to it at which a prefix may end.
        ends = ends.masked_fill(joined.gather(1, left_aligned), 0).cummax(dim=1).values
    kinds = starts if aligned else torch.zeros_like(starts)
    tree = cheapest_tree(keys, lengths, ends, kinds, toll)
    return _lay_out(tree, tuple(starts.tolist()), (len(mask), mask.shape[1]))


def _lay_out(tree: Sequence[Edge], starts: tuple[int, ...], shape: tuple[int, int]) -> Layout:
    spans = tuple(_spans(tree))
    width = shape[1]
    target = torch.zeros(shape[0] * width, dtype=torch.long)
    positions = []
    for span in spans:
        packed = torch.arange(span.start, span.stop)
        for row in span.edge.rows:
            first = row * width + starts[row]
            target[first + span.edge.begin : first + span.edge.end] = packed
        positions.append(torch.arange(span.edge.begin, span.edge.end))
    lengths = torch.tensor([span.edge.length for span in spans])

    def of_tokens(numbers: list[int]) -> torch.Tensor:
        return torch.tensor(numbers).repeat_interleave(lengths)

    places = torch.cat(positions)
    rows = [span.edge.rows[0] for span in spans]
    return Layout(
        spans=spans,
        calls=_calls(tree),
        source=of_tokens([row * width + starts[row] for row in rows]) + places,
        target=target,
        positions=places,
        since=of_tokens([span.start for span in spans]),
        until=of_tokens([span.start + span.edge.size for span in spans]),
        starts=starts,
        shape=shape,
    )


def _spans(edges: Sequence[Edge], start: int = 0, before: Span | None = None) -> Iterator[Span]:
    """The spans of edges that share one parent, and of all below them; the first begins at `start`."""
    for edge in edges:
        span = Span(start, edge, before)
        yield span
        yield from _spans(edge.below, span.stop, span)
        start += edge.size


def _calls(tree: Sequence[Edge]) -> tuple[Call, ...]:
    calls: list[Call] = []

    def add(edges: Sequence[Edge], before: tuple[int, ...]) -> None:
        """Add the calls of edges that follow the calls `before`, and of all edges below them."""
        most = TOGETHER * sum(calls[number].length for number in before)
        waiting: list[Edge] = []
        for edge in edges:
            if waiting and sum(each.size for each in waiting) + edge.size > most:
                add_one(waiting, before)
                waiting = []
            if edge.below and edge.size > most:
                add_one([replace(edge, below=())], before)
                add(edge.below, (*before, len(calls) - 1))
            else:
                waiting.append(edge)
        if waiting:
            add_one(waiting, before)

    def add_one(edges: list[Edge], before: tuple[int, ...]) -> None:
        start = calls[-1].start + calls[-1].length if calls else 0
        of_one_edge = len(edges) == 1 and not edges[0].below
        calls.append(Call(start, sum(edge.size for edge in edges), before, of_one_edge))

    add(tree, ())
    return tuple(calls)
