"""The images and videos of a row of a forward."""

from dataclasses import dataclass


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
