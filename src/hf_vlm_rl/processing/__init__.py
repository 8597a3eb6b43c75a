"""An image and a conversation become tickets and ids."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

# Loaded on first use: rewards read images without torch.
if TYPE_CHECKING:
    from .tokenizer import VLMTokenizer as VLMTokenizer

__getattr__, __dir__, __all__ = loaded_on_use(__name__)
