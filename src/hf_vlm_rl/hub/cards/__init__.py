"""Model cards of adapters: what goes on them, and how they are written. Nothing here talks to the Hub."""

from ...evaluation.measurement import Evaluation
from .card import AdapterCardData

__all__ = ["AdapterCardData", "Evaluation"]
