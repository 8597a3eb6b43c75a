"""Which rows of a batch form a group: those whose common prefix, computed once, saves most tokens.

Sorted, rows that begin alike lie side by side, and their common prefixes form a tree. From its leaves to its
root, the rows below each fork join where one prefix for all saves more than their longer prefixes do.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch

# Numbers that are neither ids nor images nor padding.
OWN = torch.iinfo(torch.long).min + 1


@dataclass(frozen=True)
class SharedPrefix:
    """Rows and what they share.

    Attributes:
        length: Tokens of the prefix; 0 for a row that stays alone.
        rows: Ascending.
    """

    length: int
    rows: tuple[int, ...]

    @property
    def saved(self) -> int:
        """Tokens that need not be computed."""
        return self.length * (len(self.rows) - 1)


def group_rows(
    keys: torch.Tensor, lengths: torch.Tensor, ends: torch.Tensor, kinds: torch.Tensor
) -> list[SharedPrefix]:
    """The groups, in the order of their first rows.

    Args:
        keys: (B, T), all rows from the first column on.
        lengths: (B,) tokens of each row.
        ends: (B, T) the last place, up to each one, at which a prefix of the row may end.
        kinds: (B,) only rows of one kind form a group.
    """
    # Every row keeps its last token: it is none that another row has.
    numbers = torch.arange(len(keys))
    own = keys.clone()
    own[numbers, lengths - 1] = OWN + numbers
    rows, inverse = torch.unique(torch.cat([kinds[:, None], own], dim=1), dim=0, return_inverse=True)
    order, rows = inverse.argsort(stable=True), rows[inverse.sort(stable=True).values]
    agreed = (rows[1:] == rows[:-1]).int().cumprod(dim=1).sum(dim=1) - 1  # -1 where kinds differ
    groups = _below(order.tolist(), agreed.tolist(), ends)
    return sorted(groups, key=lambda group: group.rows)


def _below(rows: list[int], agreed: list[int], ends: torch.Tensor) -> list[SharedPrefix]:
    """The groups of neighbouring rows, of which each agrees with the next in so many tokens."""
    if len(rows) == 1:
        return [SharedPrefix(0, (rows[0],))]
    depth = min(agreed)
    cuts = [0, *(place + 1 for place, tokens in enumerate(agreed) if tokens == depth), len(rows)]
    groups = [
        group
        for begin, end in itertools.pairwise(cuts)
        for group in _below(rows[begin:end], agreed[begin : end - 1], ends)
    ]
    return groups if depth < 1 else _joined(groups, int(ends[rows, depth].min()))


def _joined(groups: list[SharedPrefix], prefix: int) -> list[SharedPrefix]:
    """The groups, with those in one that save more with a prefix of this length in common."""
    joining = [group for group in groups if prefix * len(group.rows) > group.saved]
    together = SharedPrefix(prefix, tuple(sorted(row for group in joining for row in group.rows)))
    if together.saved <= _saved(joining):
        return groups
    return [together, *(group for group in groups if group not in joining)]


def _saved(groups: Iterable[SharedPrefix]) -> int:
    return sum(group.saved for group in groups)
