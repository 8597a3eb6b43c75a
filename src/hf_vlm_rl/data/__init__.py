"""Datasets for training vision-language models: readers, splits and filters."""

from typing import TYPE_CHECKING

from ..errors import DataError
from ..lazy import loaded_on_use

if TYPE_CHECKING:
    from .columns import from_dataset
    from .folder import load_image_folder
    from .llava import load_llava
    from .messages import load_messages
    from .mixture import load_mixture
    from .overlong import OverlongReport, filter_overlong, prompt_lengths
    from .report import LoadReport
    from .split import train_validation_split

# Loaded on first use: `datasets` takes a second to import.
_HOME = {
    "LoadReport": "report",
    "OverlongReport": "overlong",
    "filter_overlong": "overlong",
    "from_dataset": "columns",
    "load_image_folder": "folder",
    "load_llava": "llava",
    "load_messages": "messages",
    "load_mixture": "mixture",
    "prompt_lengths": "overlong",
    "train_validation_split": "split",
}

__all__ = [
    "DataError",
    "LoadReport",
    "OverlongReport",
    "filter_overlong",
    "from_dataset",
    "load_image_folder",
    "load_llava",
    "load_messages",
    "load_mixture",
    "prompt_lengths",
    "train_validation_split",
]


__getattr__ = loaded_on_use(__name__, _HOME)
