"""Tiny random checkpoints of every class that can be built, written without a network.

`write_checkpoint(model_type, directory)` leaves a directory that the plain Auto classes load: the stock
model in float32, its generation config and its native processor. `FAMILIES` are the twelve whose recipes
are written by hand, in the style of their originals; `EVERY` are all that can be built.
"""

from .checkpoint import auto_class, write_checkpoint
from .recipes import EVERY, FAMILIES, WITHOUT_POLICY, recipe

__all__ = ["EVERY", "FAMILIES", "WITHOUT_POLICY", "auto_class", "recipe", "write_checkpoint"]
