"""Datasets for training vision-language models: readers, splits and filters."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use
from ..errors import DataError

if TYPE_CHECKING:
    from .hf_dataset import from_dataset
    from .image_folder import load_image_folder
    from .lengths.overlong import OverlongReport, filter_overlong, prompt_lengths
    from .llava import load_llava
    from .messages import load_messages
    from .mixture import load_mixture
    from .passes.options import LoadOptions
    from .passes.report import LoadReport
    from .split import train_validation_split

# Loaded on first use: `datasets` takes a second to import.
_HOME = {
    "LoadOptions": "passes.options",
    "LoadReport": "passes.report",
    "OverlongReport": "lengths.overlong",
    "filter_overlong": "lengths.overlong",
    "from_dataset": "hf_dataset",
    "load_image_folder": "image_folder",
    "load_llava": "llava",
    "load_messages": "messages",
    "load_mixture": "mixture",
    "prompt_lengths": "lengths.overlong",
    "train_validation_split": "split",
}

__all__ = [
    "DataError",
    "LoadOptions",
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
