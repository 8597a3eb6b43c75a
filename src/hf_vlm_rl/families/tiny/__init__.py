"""Tiny random checkpoints of twelve families, in the style of their originals, written without a network.

`write_checkpoint(model_type, directory)` leaves a directory that the plain Auto classes load: the stock
model in float32, its generation config and its native processor. `FAMILIES` names the twelve.
"""

from .checkpoint import auto_class, write_checkpoint
from .recipes import FAMILIES, recipe

__all__ = ["FAMILIES", "auto_class", "recipe", "write_checkpoint"]
