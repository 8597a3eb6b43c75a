"""To the Hub: the complete folder of an adapter, and its upload. The only code that talks to the Hub."""

from .push import push_adapter, push_folder
from .save import save_adapter
from .trainer_push import push_with_card

__all__ = ["push_adapter", "push_folder", "push_with_card", "save_adapter"]
