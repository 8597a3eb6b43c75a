"""To the Hub: the complete folder of an adapter, and its upload. The only code that talks to the Hub."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

# Loaded on first use: what cards are made of needs neither torch nor PEFT.
if TYPE_CHECKING:
    from .images import push_images as push_images
    from .push import push_adapter as push_adapter
    from .push import push_folder as push_folder
    from .save import save_adapter as save_adapter
    from .trainer_push import push_with_card as push_with_card
else:
    __getattr__, __dir__, __all__ = loaded_on_use(__name__)
