"""To the Hub: the complete folder of an adapter, and its upload. The only code that talks to the Hub."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

if TYPE_CHECKING:
    from .push import push_adapter, push_folder
    from .save import save_adapter
    from .trainer_push import push_with_card

# Loaded on first use: what cards are made of needs neither torch nor PEFT.
_HOME = {
    "push_adapter": "push",
    "push_folder": "push",
    "push_with_card": "trainer_push",
    "save_adapter": "save",
}

__all__ = ["push_adapter", "push_folder", "push_with_card", "save_adapter"]


__getattr__ = loaded_on_use(__name__, _HOME)
