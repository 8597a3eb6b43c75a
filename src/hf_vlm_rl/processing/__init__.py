"""An image and a conversation become tickets and ids."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

if TYPE_CHECKING:
    from .tokenizer import VLMTokenizer

# Loaded on first use: rewards read images without torch.
_HOME = {"VLMTokenizer": "tokenizer"}

__all__ = ["VLMTokenizer"]

__getattr__ = loaded_on_use(__name__, _HOME)
