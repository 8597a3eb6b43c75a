"""Settings of sharing: what the user has chosen, and what this decoder allows."""

import math
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from ..._scoped import scoped

Mode = Literal["auto"] | bool

# Why the forward that runs now, in this thread, must compute every row by itself; None if it need not.
_forbidden: ContextVar[str | None] = ContextVar("hf_vlm_rl_forbidden", default=None)


def forbidden(reason: str | None) -> AbstractContextManager[None]:
    """Inside the block, forwards of this thread do not share, for this reason; None forbids nothing."""
    return scoped(_forbidden, reason or _forbidden.get())


def forbidden_here() -> str | None:
    """Why the forward that runs now must not share; None if nobody has forbidden it."""
    return _forbidden.get()


@dataclass
class SharingSettings:
    """One per policy backbone.

    Attributes:
        mode: "auto": rows share where it pays; True: wherever it is exact; False: never.
        refusal: Why no forward of this model, and no `generate`, computes a prompt once; None if some do.
        unpacked: Why rows do not share in training, while `generate` may still run prompts once; or None.
        vision_arguments: Arguments of the backbone's forward that only change image features.
        companions: Arguments of the backbone's forward that come with images (grids, sizes).
        steady_positions: The length of a batch from which on rotary frequencies depend on its longest row.
        recurrent: The decoder has recurrent or convolutional modules, which run along the tree of prefixes.
    """

    mode: Mode = "auto"
    refusal: str | None = None
    unpacked: str | None = None
    vision_arguments: frozenset[str] = frozenset()
    companions: frozenset[str] = frozenset()
    steady_positions: float = math.inf
    recurrent: bool = False

    def __post_init__(self) -> None:
        if self.mode != "auto" and not isinstance(self.mode, bool):  # 0 is none of them, and not False
            raise ValueError(f"Got sharing={self.mode!r}. Expected 'auto', True or False.")

    @property
    def packed(self) -> bool:
        """Whether rows that begin alike run in one packed row in training."""
        return self.mode is not False and self.refusal is None and self.unpacked is None
