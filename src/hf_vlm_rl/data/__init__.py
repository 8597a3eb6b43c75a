"""Datasets for training vision-language models: readers, splits and filters."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

# Loaded on first use: `datasets` takes a second to import.
if TYPE_CHECKING:
    from ..errors import DataError as DataError
    from .any_file import load_any as load_any
    from .check import DataReport as DataReport
    from .check import Finding as Finding
    from .check import check_data as check_data
    from .checked_image import CheckedImage as CheckedImage
    from .checked_image import checked_images as checked_images
    from .hf_dataset import from_dataset as from_dataset
    from .image_folder import load_image_folder as load_image_folder
    from .lengths.overlong import OverlongReport as OverlongReport
    from .lengths.overlong import filter_overlong as filter_overlong
    from .lengths.overlong import prompt_lengths as prompt_lengths
    from .llava import load_llava as load_llava
    from .messages import load_messages as load_messages
    from .mixture import load_mixture as load_mixture
    from .passes.options import LoadOptions as LoadOptions
    from .split import train_validation_split as train_validation_split
else:
    __getattr__, __dir__, __all__ = loaded_on_use(__name__)
