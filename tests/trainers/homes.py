"""Which TRL this is, and where it has a trainer: at first in `trl.experimental`, later in `trl`."""

from types import ModuleType

import pytest
import trl
from packaging.version import Version

from tests.trainers.ways import FIRST, LAST, NEWEST

# The column of the tables of docs/trainers.md that this TRL is for.
LANE = {"1.0": FIRST, "1.12": LAST}.get(".".join(map(str, Version(trl.__version__).release[:2])), NEWEST)
EXPERIMENTAL = "trl.experimental"
# These have trainers that are called like one of `trl`, and are others.
VARIANTS = ("bema_for_ref_model", "gspo_token")


def home(package: str, name: str) -> ModuleType:
    """The module of a class; skips the test where this TRL has no such class.

    Args:
        package: Of `trl.experimental`, or "" for what was stable from the first.
        name: The class.
    """
    if not package or (package not in VARIANTS and hasattr(trl, name)):
        return trl
    return pytest.importorskip(f"{EXPERIMENTAL}.{package}", reason=f"TRL {trl.__version__} has no {name}")
