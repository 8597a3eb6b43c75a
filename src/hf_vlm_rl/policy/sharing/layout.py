"""Which rows of a batch share a prefix, and where their tokens lie in the packed sequence.

A group of rows that begin with the same tokens (and images) is laid out as

    [prefix, suffix of row 1, ..., suffix of row n]

and the groups follow each other. S packed tokens stand for the B x T of the batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from .grouping import SharedPrefix, group_rows

# Suffixes attend in chunks of this share of their prefix. Larger chunks spend more on pairs of rows
# that do not see each other, smaller ones copy the prefix's keys and values more often.
CHUNK = 0.25


@dataclass(frozen=True)
class Chunk:
    """Suffixes of neighbouring rows of a group, which attend in one call.

    Attributes:
        begin: Packed position of the first token.
        end: Packed position after the last.
        row: (tokens,) which of the chunk's rows each token belongs to; None if there is one only.
    """

    begin: int
    end: int
    row: torch.Tensor | None


@dataclass(frozen=True)
class Group:
    """One group in the packed sequence.

    Attributes:
        start: Packed position of the prefix.
        prefix: Length of the prefix, may be 0.
        chunks: The suffixes of the group's rows, each at least one token.
        rows: The rows of the batch, in the order of their suffixes.
        suffixes: The suffixes' lengths.
    """

    start: int
    prefix: int
    chunks: tuple[Chunk, ...]
    rows: tuple[int, ...]
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
    def computed(self) -> int:
        """Tokens that the decoder computes."""
        return len(self.source)

    @property
    def padded(self) -> bool:
        """Whether the batch has padding."""
        real = sum(group.prefix * len(group.rows) + sum(group.suffixes) for group in self.groups)
        return real < self.shape[0] * self.shape[1]

    @property
    def saved(self) -> float:
        """Share of the batch's B x T tokens that the packed sequence leaves out, in [0, 1)."""
        return 1 - self.computed / (self.shape[0] * self.shape[1])

    def fits(self, positions: torch.Tensor, mask: torch.Tensor) -> bool:
        """Whether every real token has the position of the packed token that stands for it.

        Args:
            positions: (..., B, T) explicit positions, on the layout's device.
            mask: (B, T) bool, the real tokens.
        """
        rows = positions.expand(*positions.shape[:-2], *self.shape).flatten(-2, -1)
        taken = rows.index_select(-1, self.source).index_select(-1, self.target)
        return torch.equal(taken[..., mask.flatten()], rows[..., mask.flatten()])

    def to(self, device: torch.device) -> "Layout":
        """The layout with its tensors on `device`."""
        if device == self.source.device:
            return self
        groups = tuple(
            replace(group, chunks=tuple(_chunk_to(chunk, device) for chunk in group.chunks))
            for group in self.groups
        )
        tensors = (self.source.to(device), self.target.to(device), self.positions.to(device))
        return Layout(groups, *tensors, self.shape)


def _chunk_to(chunk: Chunk, device: torch.device) -> Chunk:
    return chunk if chunk.row is None else replace(chunk, row=chunk.row.to(device))


def find_layout(
    keys: torch.Tensor, mask: torch.Tensor, joined: torch.Tensor | None = None, aligned: bool = True
) -> Layout | None:
    """Group the rows of a batch and lay them out.

    Args:
        keys: (B, T) on the CPU. Equal numbers mean equal token and, at image tokens, equal image.
        mask: (B, T) bool on the CPU; each row's real tokens must be contiguous.
        joined: (B, T) bool on the CPU: tokens before which no prefix may end.
        aligned: Only rows that begin in the same column share a prefix.

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
    flush = (columns + starts[:, None]).clamp(max=keys.shape[1] - 1)
    keys = torch.where(columns < lengths[:, None], keys.gather(1, flush), torch.iinfo(keys.dtype).min)
    ends = columns.expand_as(keys)
    if joined is not None:
        # The last place, up to each one, at which a prefix may end.
        ends = ends.masked_fill(joined.gather(1, flush), 0).cummax(dim=1).values
    kinds = starts if aligned else torch.zeros_like(starts)
    groups = group_rows(keys, lengths, ends, kinds)
    return _lay_out(groups, starts.tolist(), lengths.tolist(), (len(mask), mask.shape[1]))


def _lay_out(
    grouped: Sequence[SharedPrefix],
    starts: list[int],
    lengths: list[int],
    shape: tuple[int, int],
) -> Layout:
    width = shape[1]
    target = torch.zeros(shape[0] * width, dtype=torch.long)
    source, positions, groups = [], [], []
    packed = 0
    for shared in grouped:
        prefix, rows = shared.length, shared.rows
        suffixes = [lengths[row] - prefix for row in rows]
        chunks = tuple(_chunks(packed + prefix, prefix, suffixes))
        groups.append(Group(packed, prefix, chunks, rows, tuple(suffixes)))
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


def _chunks(begin: int, prefix: int, suffixes: Sequence[int]) -> Iterator[Chunk]:
    """Cut a group's suffixes, the first of which lies at `begin`, into chunks."""
    waiting: list[int] = []
    for number, length in enumerate(suffixes):
        waiting.append(length)
        follows = suffixes[number + 1] if number + 1 < len(suffixes) else None
        tokens = sum(waiting)
        if follows is None or tokens + follows > CHUNK * prefix:
            rows = torch.arange(len(waiting)).repeat_interleave(torch.tensor(waiting))
            yield Chunk(begin, begin + tokens, rows if len(waiting) > 1 else None)
            begin += tokens
            waiting = []
