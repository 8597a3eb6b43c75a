"""What a run asks of a card: waits of the host, by kind and line, and launched kernels."""

import sys
import threading
import warnings
from collections import Counter
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
# Lines of torch and of the card itself are nobody's: the line that called them is blamed.
_NOT_BLAMED = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")


class Counts:
    """Counts of one card; kernels and waits of all threads.

    Attributes:
        waits: (kind, line) to the times that the host waited there. Kinds: "read" (`item`, `bool`),
            "download", "upload" (blocking, or from pageable memory), "size" (the card decides the shape of a
            result), "compare" (`torch.equal`).
        launched: Kernels.
        warns: Whether each wait is a warning, as `torch.cuda.set_sync_debug_mode("warn")` wants it.
    """

    def __init__(self) -> None:
        self.waits: Counter[tuple[str, str]] = Counter()
        self.launched = 0
        self.warns = False
        self._lock = threading.Lock()

    def launch(self) -> None:
        """Count a kernel."""
        with self._lock:
            self.launched += 1

    def wait(self, kind: str) -> None:
        """Count a wait at the line that asks for it."""
        with self._lock:
            self.waits[kind, _line()] += 1
        if self.warns:
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)


def _line() -> str:
    """The innermost line of the stack that is neither torch's nor the card's."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_NOT_BLAMED):
            name = path.removeprefix(str(ROOT)).lstrip("/")
            return f"{name.rpartition('site-packages/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
