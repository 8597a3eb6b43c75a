"""What a GRPO run needs of each GPU, from a checkpoint's config and processor alone.

A step is run on the meta device, with the policy's own code: shapes without memory. `dry` makes that
possible and counts, `step` is the step, `memory` adds up and finds the `settings` that
fit.
"""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

# Loaded on first use: the command line asks this package for its arguments.
if TYPE_CHECKING:
    from ..loading.checkpoint import Checkpoint as Checkpoint
    from ..loading.checkpoint import read_checkpoint as read_checkpoint
    from .memory import Memory as Memory
    from .memory import Plan as Plan
    from .memory import estimate as estimate
    from .settings import Run as Run
    from .settings import Settings as Settings
    from .settings import candidates as candidates
else:
    __getattr__, __dir__, __all__ = loaded_on_use(__name__)
