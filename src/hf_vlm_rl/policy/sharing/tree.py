"""What the rows of a batch have in common: a tree of prefixes, each of which is computed once.

In sorted order, rows that begin alike lie side by side. The number of tokens in which neighbours agree makes
a tree: rows part at its forks and end at its leaves. Not every fork is worth calls of its own, so the
cheapest tree keeps only some. For one prompt and its completions, it is one prefix with its suffixes.
"""

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

# The first of B numbers that stand neither for ids nor for images nor for padding.
OWN = torch.iinfo(torch.long).min + 1

# Tokens that a prefix behind another prefix must save. It costs calls of attention and of recurrent modules,
# and the keys that tokens below it attend to are no longer contiguous.
TOLL = 16

# A prefix behind another prefix has at least so many tokens: recurrent modules take a single token for a
# decoding step and change their states in place.
FEWEST = 2


@dataclass(frozen=True)
class Edge:
    """Tokens that some rows have in common, as they have everything before these tokens.

    Attributes:
        begin: Index of the first of these tokens in each of the rows.
        end: Index behind the last one.
        rows: Ascending.
        below: The edges that follow, sorted by rows. A row's last edge is in no other row and has none below.
    """

    begin: int
    end: int
    rows: tuple[int, ...]
    below: tuple["Edge", ...] = ()

    @property
    def length(self) -> int:
        """Its tokens."""
        return self.end - self.begin

    @functools.cached_property
    def size(self) -> int:
        """Its tokens and those of all edges below it."""
        return self.length + sum(edge.size for edge in self.below)


@dataclass(frozen=True, eq=False)
class Fork:
    """Rows that agree up to some place, and part there; or a row alone.

    Attributes:
        end: The last place up to which one prefix of all may go; for a row alone, its length.
        rows: The rows.
        parts: Groups of these rows that agree further.
    """

    end: int
    rows: tuple[int, ...]
    parts: tuple["Fork", ...] = ()


# Maps (fork, tokens of the prefix that its rows may continue) to (cost in tokens and tolls of the cheapest
# edges, where the edge that ends at the fork then begins; None if there is no such edge).
Costs = Callable[[Fork, int], tuple[float, int | None]]


def cheapest_tree(
    keys: torch.Tensor, lengths: torch.Tensor, ends: torch.Tensor, kinds: torch.Tensor, toll: float = TOLL
) -> tuple[Edge, ...]:
    """The edges that begin rows; with all edges below them, they hold every token of the rows.

    `keys` (B, T) are the rows from the first column on, `lengths` (B,) their tokens, and `ends` (B, T) has
    for each place the last one up to it at which a prefix of the row may end. Only rows of one of the `kinds`
    (B,) share. A prefix behind another prefix must save `toll` tokens; infinity allows no such prefix.
    """
    # No prefix has a row's last token: a number that no other row has stands in its place.
    numbers = torch.arange(len(keys))
    unique_keys = keys.clone()
    unique_keys[numbers, lengths - 1] = OWN + numbers
    rows, inverse = torch.unique(torch.cat([kinds[:, None], unique_keys], dim=1), dim=0, return_inverse=True)
    order, rows = inverse.argsort(stable=True), rows[inverse.sort(stable=True).values]
    agreed = (rows[1:] == rows[:-1]).int().cumprod(dim=1).sum(dim=1) - 1  # -1 where kinds differ
    fork = _fork(order.tolist(), agreed.tolist(), lengths.tolist(), ends)
    return _by_rows(_edges(fork, 0, _costs(toll)))


def _costs(toll: float) -> Costs:
    @functools.cache
    def cheapest(fork: Fork, begin: int) -> tuple[float, int | None]:
        if not fork.parts:
            return fork.end - begin, None
        best: tuple[float, int | None] = sum(cheapest(part, begin)[0] for part in fork.parts), None
        for start in sorted({0, begin}):
            if fork.end - start >= (FEWEST if start else 1):
                below = sum(cheapest(part, fork.end)[0] for part in fork.parts)
                cost = fork.end - start + (toll if start else 0) + below
                best = min(best, (cost, start), key=lambda option: option[0])
        return best

    return cheapest


def _edges(fork: Fork, begin: int, costs: Costs) -> list[Edge]:
    """The cheapest edges for a fork's rows, which continue a prefix of `begin` tokens or begin anew."""
    if not fork.parts:
        return [Edge(begin, fork.end, fork.rows)]
    _, start = costs(fork, begin)
    end = begin if start is None else fork.end
    edges = [edge for part in fork.parts for edge in _edges(part, end, costs)]
    if start is None:
        return edges
    below = _by_rows(edge for edge in edges if edge.begin)
    rows = tuple(sorted(row for edge in below for row in edge.rows))
    return [Edge(start, fork.end, rows, below), *(edge for edge in edges if not edge.begin)]


def _by_rows(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    return tuple(sorted(edges, key=lambda edge: edge.rows))


def _fork(rows: list[int], agreed: list[int], lengths: list[int], ends: torch.Tensor) -> Fork:
    """The fork of neighbouring rows; `agreed`: in how many tokens each of them agrees with the next."""
    if len(rows) == 1:
        return Fork(lengths[rows[0]], (rows[0],))
    depth = min(agreed)
    cuts = [0, *(place + 1 for place, tokens in enumerate(agreed) if tokens == depth), len(rows)]
    parts = tuple(
        _fork(rows[begin:end], agreed[begin : end - 1], lengths, ends)
        for begin, end in itertools.pairwise(cuts)
    )
    return Fork(int(ends[rows, depth].min()) if depth > 0 else 0, tuple(rows), parts)
