"""The parts of the GPU command, in order, and the seconds that each is given."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .report import Part


@dataclass(frozen=True)
class Planned:
    """A part before it runs; what it does is imported only where it runs.

    Attributes:
        title: Its heading.
        seconds: Its share of the whole time; what earlier parts leave over is added.
        load: Gives the function that writes the part.
    """

    title: str
    seconds: float
    load: Callable[[], Callable[[Part], None]]


def _conformance() -> Callable[[Part], None]:
    from .conformance import conformance

    return conformance


def _syncs() -> Callable[[Part], None]:
    from .syncs import syncs

    return syncs


def _preprocessing() -> Callable[[Part], None]:
    from .preprocessing import preprocessing

    return preprocessing


def _grid(name: str) -> Callable[[Part], None]:
    from .grid import grid

    return partial(grid, name=name)


PARTS = {
    "qwen2_5_vl-3b": Planned("Steps: Qwen2.5-VL of 3B", 175, partial(_grid, "qwen2_5_vl-3b")),
    "internvl-8b": Planned("Steps: InternVL of 8B", 150, partial(_grid, "internvl-8b")),
    "conformance": Planned("Conformance", 95, _conformance),
    "syncs": Planned("Waiting for the device", 30, _syncs),
    "preprocessing": Planned("Preprocessing on the device", 15, _preprocessing),
    "qwen3_5-4b": Planned("Steps: a Qwen3.5 hybrid of 4B", 75, partial(_grid, "qwen3_5-4b")),
}
