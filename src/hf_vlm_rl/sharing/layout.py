"""Which rows of a batch share a prefix, and where their tokens lie in the packed sequence.

A group of rows that begin with the same tokens (and images) is laid out as

    [prefix, suffix of row 1, ..., suffix of row n]

and the groups follow each other. S packed tokens stand for the B x T of the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

# Rows form a group if they agree in this share of the shorter one. A common system prompt is less.
LEAST_AGREEMENT = 0.25


@dataclass(frozen=True)
class Group:
    """One group in the packed sequence.

    Attributes:
        start: Packed position of the prefix.
        prefix: Length of the prefix, may be 0.
        suffixes: Length of each row's suffix, at least 1.
    """

    start: int
    prefix: int
    suffixes: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How a batch of B x T tokens is packed into S.

    Attributes:
        groups: The groups, in packed order.
        source: (S,) index of each packed token in the flattened batch.
        target: (B * T,) packed position of each token of the batch; 0 for padding.
        positions: (S,) position of each packed token in its row, counted without padding.
        shape: (B, T).
    """

    groups: tuple[Group, ...]
    source: torch.Tensor
    target: torch.Tensor
    positions: torch.Tensor
    shape: tuple[int, int]

    @property
    def saved(self) -> float:
        """Share of the batch's B x T tokens that the packed sequence leaves out, in [0, 1)."""
        return 1 - len(self.source) / (self.shape[0] * self.shape[1])

    def to(self, device: torch.device) -> "Layout":
        """The layout with its index tensors on `device`."""
        tensors = (self.source.to(device), self.target.to(device), self.positions.to(device))
        return Layout(self.groups, *tensors, self.shape)


def find_layout(keys: torch.Tensor, mask: torch.Tensor) -> Layout | None:
    """Group the rows of a batch and lay them out.

    Args:
        keys: (B, T) on the CPU. Equal numbers mean equal token and, at image tokens, equal image.
        mask: (B, T) bool on the CPU; each row's real tokens must be contiguous.

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
    flush = keys.gather(1, (columns + starts[:, None]).clamp(max=keys.shape[1] - 1))
    flush = torch.where(columns < lengths[:, None], flush, torch.iinfo(keys.dtype).min)
    return _lay_out(_group(flush, lengths), starts.tolist(), lengths.tolist(), tuple(keys.shape))


def _group(flush: torch.Tensor, lengths: torch.Tensor) -> list[tuple[int, list[int]]]:
    """Prefix length and rows of each group."""
    waiting = list(range(len(flush)))
    groups = []
    while waiting:
        first = waiting[0]
        shorter = torch.minimum(lengths[waiting], lengths[first])
        agreed = (flush[waiting] == flush[first]).int().cumprod(dim=1).sum(dim=1)
        # Every row keeps a suffix of one token at least.
        agreed = torch.minimum(agreed, shorter - 1)
        belong = agreed >= (LEAST_AGREEMENT * shorter).clamp(min=1)
        rows = [row for row, joins in zip(waiting, belong.tolist(), strict=True) if joins or row == first]
        prefix = int(agreed[belong].min()) if len(rows) > 1 else 0
        groups.append((prefix, rows))
        waiting = [row for row in waiting if row not in rows]
    return groups


def _lay_out(
    grouped: Sequence[tuple[int, list[int]]],
    starts: list[int],
    lengths: list[int],
    shape: tuple[int, int],
) -> Layout:
    width = shape[1]
    target = torch.zeros(shape[0] * width, dtype=torch.long)
    source, positions, groups = [], [], []
    packed = 0
    for prefix, rows in grouped:
        groups.append(Group(packed, prefix, tuple(lengths[row] - prefix for row in rows)))
        head = torch.arange(prefix)
        begin = packed
        source.append(rows[0] * width + starts[rows[0]] + head)
        positions.append(head)
        packed += prefix
        for row in rows:
            at = row * width + starts[row]
            tail = torch.arange(prefix, lengths[row])
            target[at : at + prefix] = begin + head
            target[at + prefix : at + lengths[row]] = packed + tail - prefix
            source.append(at + tail)
            positions.append(tail)
            packed += len(tail)
    return Layout(tuple(groups), torch.cat(source), target, torch.cat(positions), shape)
