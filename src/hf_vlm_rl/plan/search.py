"""Finds the settings with the fewest compromises that fit."""

from collections.abc import Iterable
from dataclasses import dataclass

from tqdm.auto import tqdm

from ..loading.meta import Checkpoint
from .memory import Memory, estimate
from .settings import Run, Settings


@dataclass(frozen=True)
class Plan:
    """What was tried.

    Attributes:
        tried: Settings and what they need, in order; the last one fits, if any does.
        capacity: Bytes of a GPU.
    """

    tried: tuple[tuple[Settings, Memory], ...]
    capacity: int

    @property
    def fits(self) -> bool:
        """Whether there are settings that fit."""
        return self.tried[-1][1].total <= self.capacity

    @property
    def best(self) -> tuple[Settings, Memory]:
        """Those that fit; if none do, those that need the least."""
        return self.tried[-1] if self.fits else min(self.tried, key=lambda pair: pair[1].total)


def search(checkpoint: Checkpoint, run: Run, capacity: int, tries: Iterable[Settings]) -> Plan:
    """Try settings in order until some fit.

    Args:
        checkpoint: The model's config and processor.
        run: What is trained.
        capacity: Bytes of each GPU.
        tries: At least one.
    """
    tried = []
    # Shown in a terminal alone: large models take minutes.
    with tqdm(tries, "trying settings", unit=" settings", leave=False, disable=None) as bar:
        for settings in bar:
            tried.append((settings, estimate(checkpoint, run, settings)))
            if tried[-1][1].total <= capacity:
                break
    return Plan(tuple(tried), capacity)
