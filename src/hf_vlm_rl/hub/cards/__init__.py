"""Model cards of adapters: what goes on them, and how they are written. Nothing here talks to the Hub."""

from .card import AdapterCardData
from .measurement import Evaluation

__all__ = ["AdapterCardData", "Evaluation"]
