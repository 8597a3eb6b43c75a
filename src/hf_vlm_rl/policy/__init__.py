"""Tickets and ids become logits: the policy, and what it computes once instead of often."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

if TYPE_CHECKING:
    from .policy import VLMPolicy as VLMPolicy

__getattr__, __dir__, __all__ = loaded_on_use(__name__)
