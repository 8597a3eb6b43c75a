"""FlexAttention over a packed sequence: one kernel for all tokens of a layer.

The kernel is told which blocks of tokens see nothing of each other and which see all, and asks a function of
two places for the rest. Ours reads a table of who sees whom inside these blocks, made of the model's masks.
So every model and kind of layer has the same function, and no code of a model is compiled into the kernel.
"""

import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import exc
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from .layout import Layout

# Tokens along a block's side, as torch's kernels take them.
SIDE = 128

# With fewer blocks, torch would compile other kernels.
FEWEST = 2

# Blocks that are looked at together: 4 million pairs of tokens.
TOGETHER = 256

# What stands in the table of blocks: no pair sees each other, all do, or the number of a block of pairs.
NOTHING, ALL, MIXED = 0, 1, 2

# The tensors of a `BlockMask`.
TENSORS = (
    "kv_num_blocks",
    "kv_indices",
    "full_kv_num_blocks",
    "full_kv_indices",
    "q_num_blocks",
    "q_indices",
    "full_q_num_blocks",
    "full_q_indices",
)

# What torch raises when it will not compile a function once more; the second is the name in torch 2.6.
COMPILED_TOO_OFTEN = tuple(
    getattr(exc, name) for name in ("FailOnRecompileLimitHit", "RecompileLimitExceeded") if hasattr(exc, name)
)

# Says which queries see which keys, of packed positions that broadcast.
Seen = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Blocks:
    """Who sees whom in a packed sequence, by blocks.

    Attributes:
        length: Tokens, a multiple of `SIDE`. Those beyond the packed ones see themselves.
        lists: Of `TENSORS`, the blocks to look at for each block of queries and of keys.
        pairs: (n * SIDE * SIDE,) bool, of `NOTHING`, of `ALL`, and of each block in which it is mixed.
        places: (length / SIDE squared,) where a block of queries and keys begins in `pairs`.
        rows: (length,) where a query's blocks begin in `places`.
    """

    length: int
    lists: dict[str, Any]
    pairs: torch.Tensor
    places: torch.Tensor
    rows: torch.Tensor

    def mask(self) -> BlockMask:
        """As the kernel takes it."""
        pairs, places, rows = self.pairs, self.places, self.rows

        # Tables of one dimension, as a kernel need not know how long their lines are.
        def mask_mod(
            batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
        ) -> torch.Tensor:
            place = places[rows[query] + key // SIDE]
            return pairs[place + query % SIDE * SIDE + key % SIDE]

        lengths = (self.length, self.length)
        return BlockMask(lengths, **self.lists, BLOCK_SIZE=(SIDE, SIDE), mask_mod=mask_mod)


def find_blocks(layout: Layout, seen: Seen) -> Blocks:
    """The blocks of a layout.

    Pairs of tokens are looked at only where the layout lets any see each other, `TOGETHER` blocks at a time:
    memory does not grow with the square of the length. The host waits for the device once, for the number of
    mixed blocks.

    Args:
        layout: How the rows are packed.
        seen: Which pairs of its tokens see each other.
    """
    device, last = layout.source.device, layout.computed - 1
    count = max(FEWEST, -(-layout.computed // SIDE))
    within = torch.arange(SIDE, device=device)

    def look(blocks: torch.Tensor) -> torch.Tensor:
        """(n, SIDE, SIDE) bool, of (n, 2) blocks of queries and of keys."""
        queries = blocks[:, 0, None, None] * SIDE + within[:, None]
        keys = blocks[:, 1, None, None] * SIDE + within
        packed = (queries <= last) & (keys <= last)
        return torch.where(packed, seen(queries.clamp(max=last), keys.clamp(max=last)), queries == keys)

    candidates = _candidates(layout, count).to(device)
    looks = (look(some).flatten(1) for some in candidates.split(TOGETHER))
    found = [(pairs.any(dim=1), pairs.all(dim=1)) for pairs in looks]
    anything, everything = (torch.cat(parts) for parts in zip(*found, strict=True))
    mixed = candidates[anything & ~everything]
    table = torch.full((count, count), NOTHING, dtype=torch.int32, device=device)
    table[candidates[:, 0], candidates[:, 1]] = everything.int() * ALL
    table[mixed[:, 0], mixed[:, 1]] = MIXED + torch.arange(len(mixed), dtype=torch.int32, device=device)
    plain = torch.tensor([False, True], device=device)[:, None, None].expand(-1, SIDE, SIDE)
    numbers = torch.arange(count, dtype=torch.int32, device=device)
    listed = BlockMask.from_kv_blocks(*_listed(table >= MIXED), *_listed(table == ALL), BLOCK_SIZE=SIDE)
    return Blocks(
        length=count * SIDE,
        lists={name: getattr(listed, name) for name in TENSORS},
        pairs=torch.cat([plain, *map(look, mixed.split(TOGETHER))]).flatten(),
        places=(table * SIDE * SIDE).flatten(),
        rows=numbers.repeat_interleave(SIDE) * count,
    )


def _candidates(layout: Layout, count: int) -> torch.Tensor:
    """(n, 2) blocks of queries and of keys in which some tokens may see each other, on the CPU."""
    spans = torch.tensor([(span.start, span.stop, span.start + span.edge.size) for span in layout.spans])
    starts, stops, untils = (column[:, None] for column in spans.T)
    keys = torch.arange(count)
    # Keys of an edge are seen from where it begins to where the last edge below it ends.
    touched = (starts < (keys + 1) * SIDE) & (stops > keys * SIDE)
    first = torch.where(touched, starts, count * SIDE).amin(dim=0) // SIDE
    last = (torch.where(touched, untils, 0).amax(dim=0) - 1) // SIDE
    queries = keys[:, None]
    return (((queries >= first) & (queries <= last)) | (queries == keys)).nonzero()


def _listed(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many of a row's blocks are set, (1, 1, n), and which, first in (1, 1, n, n)."""
    order = blocks.int().sort(dim=1, descending=True, stable=True).indices
    return blocks.sum(dim=1, dtype=torch.int32)[None, None], order.int()[None, None]


# In a model that is compiled as a whole, the kernel stays the one that was compiled and checked here.
@torch.compiler.disable(recursive=False)
def flex(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: Blocks, scaling: float | None
) -> torch.Tensor:
    """Attention of packed tokens.

    Args:
        query: (1, heads, S, d).
        key: (1, key heads, S, d).
        value: (1, key heads, S, d).
        blocks: Who sees whom.
        scaling: Of the scores; 1 / sqrt(d) if None.

    Returns:
        (1, heads, S, d).
    """
    tokens = query.shape[2]
    beyond = blocks.length - tokens
    # Whole blocks in one layout of memory: every length is the same case for the compiler.
    tensors = [
        (pad(each, (0, 0, 0, beyond)) if beyond else each).contiguous() for each in (query, key, value)
    ]
    # Compilers take a number for one that changes; a text is a constant.
    factor = repr(1 / math.sqrt(query.shape[3]) if scaling is None else float(scaling))
    kind = (query.device, query.dtype, *(size for each in tensors for size in each.shape[1::2]), factor)
    kernel = _compiled(query.device, kind)
    tables = (blocks.pairs, blocks.places, blocks.rows)
    try:
        attended = kernel(*tensors, blocks.lists, tables, factor)
    except COMPILED_TOO_OFTEN:
        _kernels.pop(kind, None)
        attended = _compiled(query.device, kind)(*tensors, blocks.lists, tables, factor)
    return attended[:, :, :tokens]


_kernels: dict[tuple, Callable[..., torch.Tensor]] = {}


def _compiled(device: torch.device, kind: tuple) -> Callable[..., torch.Tensor]:
    """The kernel for one kind of call, which is compiled when it is first called, once for all lengths.

    Each kind has a function of its own, since torch counts how often a function is compiled anew: for another
    mode of gradients, say, or after a library has made classes known to torch. Above the limit, a call that
    must not run uncompiled, with all scores in memory, fails, and a new function takes its place.
    """
    if kind not in _kernels:
        code = _attend.__code__.replace(co_name=f"packed_attention_{len(_kernels)}")
        function = types.FunctionType(code, globals(), code.co_name)
        # On CPUs, torch's compiler has no backward pass of it and fails on lengths that change.
        backend = "aot_eager" if device.type == "cpu" else "inductor"
        _kernels[kind] = torch.compile(function, dynamic=True, fullgraph=True, backend=backend)
    return _kernels[kind]


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lists: dict[str, torch.Tensor],
    tables: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    factor: str,
) -> torch.Tensor:
    # A multiple of the side, as the compiler can tell: it leaves out what checks for the sequence's end.
    length = lists["kv_num_blocks"].shape[2] * SIDE
    mask = Blocks(length, lists, *tables).mask()
    return flex_attention(query, key, value, block_mask=mask, scale=float(factor), enable_gqa=True)
