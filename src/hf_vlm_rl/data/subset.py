"""Groups whose sizes add up to a wanted number, or as near to it as they can."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T", bound=Sequence)


def choose(groups: Sequence[T], wanted: int) -> list[T]:
    """Some, but not all, of the groups, with the total size nearest to `wanted`.

    Args:
        groups: Two or more, none empty, in random order: the first that fit are taken.
        wanted: At least 1, less than all sizes together.
    """
    taken, total = [], 0
    for group in groups:
        if total + len(group) <= wanted:
            taken.append(group)
            total += len(group)
    if total == wanted:
        return taken
    counts = _counts([len(group) for group in groups], wanted)
    taken = []
    for group in groups:
        if counts[len(group)]:
            counts[len(group)] -= 1
            taken.append(group)
    return taken


def _counts(sizes: list[int], wanted: int) -> Counter[int]:
    """How many groups of each size give the best total: a subset sum over distinct sizes."""
    # Bit t of a number says that the total t can be reached; no best total is beyond `most`.
    most = min(sum(sizes) - 1, max(2 * wanted, min(sizes)))
    within = (1 << (most + 1)) - 1
    steps: list[tuple[int, int, int]] = []  # size, how many at once, what was reachable before
    reachable = 1
    for size, count in sorted(Counter(sizes).items()):
        times = 1
        while count:
            times = min(times, count)
            steps.append((size, times, reachable))
            reachable |= reachable << size * times & within
            count -= times
            times *= 2
    total = _nearest(reachable, wanted)
    counts: Counter[int] = Counter()
    for size, times, before in reversed(steps):
        if not before >> total & 1:
            counts[size] += times
            total -= size * times
    return counts


def _nearest(reachable: int, wanted: int) -> int:
    """The reachable total of at least 1 that is nearest to `wanted`; of two, the smaller."""
    below = (reachable & ((1 << (wanted + 1)) - 1)).bit_length() - 1
    above = reachable >> wanted + 1
    over = wanted + (above & -above).bit_length() if above else None
    if over is None or (below and wanted - below <= over - wanted):
        return below
    return over
