"""Checkpoint formats that are not transformers' own, by the `model_type` of their config.json."""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType


@dataclass(frozen=True)
class OriginalFormat:
    """A format that is read natively.

    Attributes:
        family: `model_type` of the transformers model that the weights go into.
        package: Subpackage with `open_checkpoint(source, stored, located)`, which
            returns an object with `config`, `processor` and `load_model(**kwargs)`; and with
            `read_headers(source, stored, located)`, which returns config and processor and leaves the
            weights where they are.
    """

    family: str
    package: str

    @property
    def module(self) -> ModuleType:
        """The subpackage, imported on first use."""
        return import_module(f".{self.package}", __package__)


ORIGINAL_FORMATS: dict[str, OriginalFormat] = {
    "internvl_chat": OriginalFormat(family="internvl", package="internvl_chat"),
}
