"""Checkpoint formats that are not transformers' own, by the `model_type` of their config.json."""

from importlib import import_module
from types import ModuleType

# Each is a subpackage with `open_checkpoint(source, stored, located)`, which returns an object with `config`,
# `processor` and `load_model(**kwargs)`, and with `read_headers` of the same arguments, which returns config
# and processor and leaves the weights where they are.
ORIGINAL_FORMATS = ("internvl_chat",)


def reader_of(model_type: str) -> ModuleType | None:
    """The subpackage that reads an original format, imported on first use; None for transformers' own."""
    return import_module(f".{model_type}", __package__) if model_type in ORIGINAL_FORMATS else None
