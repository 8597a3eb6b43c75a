"""What a part of the GPU command writes, line by line, so that nothing is lost when its time is up."""

import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Part:
    """One part at work.

    Attributes:
        file: Where its markdown goes.
        device: "cuda" or "cpu".
        tiny: Tiny models in the place of true ones, for tests.
        deadline: Time by `time.monotonic()` at which it is ended.
    """

    file: Path
    device: str
    tiny: bool
    deadline: float

    def seconds_left(self) -> float:
        """Until it is ended."""
        return self.deadline - time.monotonic()

    def write(self, text: str) -> None:
        """Add a line of markdown."""
        with self.file.open("a") as file:
            file.write(text + "\n")

    def failed(self, error: BaseException) -> None:
        """Add an error, with its traceback, and go on."""
        trace = "".join(traceback.format_exception(error)).rstrip()
        self.write(f"\n**Failed**: {reason(error)}\n\n```text\n{trace[-3000:]}\n```\n")


def table(cells: Iterable[Any], head: bool = False) -> str:
    """A row of a table; a head brings its rule."""
    cells = [str(cell).replace("|", "/") for cell in cells]
    row = "| " + " | ".join(cells) + " |"
    return row + "\n|" + "---|" * len(cells) if head else row


def reason(error: BaseException) -> str:
    """An error in one line of at most 200 characters."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]
