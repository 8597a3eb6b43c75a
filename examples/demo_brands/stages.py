"""How much of everything a run has, and how long each of its stages takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """How much of everything.

    Attributes:
        labelled: Pictures whose brand the alignment is told.
        alignment_epochs: Its passes over them.
        warm_up: The first of these pictures, which SFT is told too.
        warm_up_epochs: Its passes over them.
        selection: Pictures on which to see, before GRPO, whether it can gain.
        prompts: Pictures of a GRPO step; none comes twice.
        held_out: Pictures of the final measurement.
        sft_epochs: Passes of the control "sft" over GRPO's pictures.
        dpo_epochs: Passes of the control "dpo" over the pairs made of GRPO's pictures.
    """

    labelled: int = 640
    alignment_epochs: int = 20
    warm_up: int = 160
    warm_up_epochs: int = 2
    selection: int = 64
    prompts: int = 16
    held_out: int = 500
    sft_epochs: int = 3
    dpo_epochs: int = 2


DEFAULT = Sizes()


class Stages:
    """Wall time and processor time, in seconds, of the stages of a run.

    Attributes:
        seconds: Stage to `{"wall": ..., "processor": ...}`.
    """

    def __init__(self):
        self.seconds: dict[str, dict[str, float]] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what is done inside."""
        wall, processor = time.perf_counter(), time.process_time()
        yield
        self.seconds[name] = {
            "wall": time.perf_counter() - wall,
            "processor": time.process_time() - processor,
        }
