"""Tickets and ids become logits: the policy, and what it computes once instead of often."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

if TYPE_CHECKING:
    from .policy import VLMPolicy

_HOME = {"VLMPolicy": "policy"}

__all__ = ["VLMPolicy"]

__getattr__ = loaded_on_use(__name__, _HOME)
