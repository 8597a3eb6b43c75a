"""What a GRPO run needs of each GPU, from a checkpoint's config and processor alone.

A step is run on the meta device, with the policy's own code: shapes without memory. `dry` makes that
possible, `live` counts, `step` is the step, `memory` adds up, `settings` and `search` find what fits.
"""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

if TYPE_CHECKING:
    from ..loading.meta import Checkpoint, read_checkpoint
    from .memory import Memory, estimate
    from .search import Plan
    from .settings import Run, Settings, candidates

# Loaded on first use: the command line asks this package for its arguments.
_HOME = {
    "Checkpoint": ".loading.meta",
    "Memory": "memory",
    "Plan": "search",
    "Run": "settings",
    "Settings": "settings",
    "candidates": "settings",
    "estimate": "memory",
    "read_checkpoint": ".loading.meta",
}

__all__ = ["Checkpoint", "Memory", "Plan", "Run", "Settings", "candidates", "estimate", "read_checkpoint"]


__getattr__ = loaded_on_use(__name__, _HOME)
