"""What is known of models, as data: one row a family, and which rows exist."""

from .box_format import BoxFormat
from .family import VLMFamily
from .registry import family_for, register_family
from .table import FAMILIES

__all__ = ["FAMILIES", "BoxFormat", "VLMFamily", "family_for", "register_family"]
