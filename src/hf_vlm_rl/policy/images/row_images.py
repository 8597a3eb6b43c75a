"""The rows of a forward as the host knows them: their images, ids and mask."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from ..transfer import download


@dataclass(frozen=True)
class RowImages:
    """The images and videos of one row.

    Attributes:
        tickets: In the order of the row's placeholders.
        lengths: Tokens of each image.
        tail: Prompt tokens after the last image token; None if not carried.
        inside: The tickets came inside the ids, from a trainer that knows nothing of images.
    """

    tickets: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    tail: int | None = None
    inside: bool = False


class HostCopy:
    """Whole numbers among a forward's arguments, on the host: downloaded together when first asked for."""

    def __init__(self, kwargs: Mapping[str, Any]):
        self._tensors = [kwargs.get(name) for name in ("input_ids", "attention_mask", "pixel_values")]

    @cached_property
    def _copies(self) -> list[Any]:
        copies = download([each if _is_table(each) else None for each in self._tensors])
        return [each if copy is None else copy for copy, each in zip(copies, self._tensors, strict=True)]

    @property
    def ids(self) -> torch.Tensor:
        """(B, T)."""
        return self._copies[0]

    @property
    def mask(self) -> Any:
        """The mask; as it was given where it is no table of whole numbers."""
        return self._copies[1]

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "HostCopy":
        """A copy with other ids and another mask."""
        mask = self.mask if self.mask is None else change(self.mask)
        return HostCopy({"input_ids": change(self.ids), "attention_mask": mask})

    @property
    def carried(self) -> Any:
        """`pixel_values`; as they were given where they are no table of whole numbers."""
        return self._copies[2]


def _is_table(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim == 2 and not value.is_floating_point()


@dataclass(frozen=True)
class Rows:
    """The rows of a forward.

    Attributes:
        images: Of each row.
        copy: The ids, with clean placeholders, and the mask.
        types: Token types that were made of the ids, by the backbone's name for them, (B, T) on the host.
    """

    images: Sequence[RowImages]
    copy: HostCopy
    types: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def tickets(self) -> list[int]:
        """Of all rows, in order."""
        return [ticket for row in self.images for ticket in row.tickets]

    def choose(self, numbers: Sequence[int]) -> "Rows":
        """These rows alone."""
        return Rows([self.images[number] for number in numbers], self.copy.map(lambda table: table[numbers]))

    def columns(self, chosen: slice) -> "Rows":
        """The rows in some columns, among them those of all images."""
        return Rows(self.images, self.copy.map(lambda table: table[:, chosen]))
