"""`BoxReward`: what rewards of boxes share, the meaning of a model's numbers and the sizes of images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ColumnError
from ..families.box_coordinates import BoxCoordinates, check_box
from .base import AnswerReward
from .written_boxes import image_sizes


@dataclass(frozen=True, kw_only=True)
class BoxReward(AnswerReward):
    """An `AnswerReward` that compares boxes.

    Args:
        coordinates: What the model's numbers mean; None: the same as the column's.
    """

    coordinates: BoxCoordinates | None = None

    def sizes(self, columns: Mapping[str, Any], boxes: Sequence[Sequence | None]) -> list:
        """Each image's (width, height) in pixels, or None; with `coordinates` None, ().

        Args:
            columns: The dataset's columns.
            boxes: The right boxes of each row, [x1, y1, x2, y2] in pixels.

        Raises:
            ColumnError: If no size is known, or a box is more than a pixel outside its image, as one of
                [x, y, width, height] that was taken for corners.
        """
        if self.coordinates is None:
            return [()] * len(boxes)
        sizes = image_sizes(columns, len(boxes), self.__name__)
        for row, (right, size) in enumerate(zip(boxes, sizes, strict=True)):
            if size is None:
                continue
            for box in right or ():
                try:
                    check_box(box, size)
                except ValueError as error:
                    raise ColumnError(
                        f"{self.__name__}: row {row} of the column {self.column!r}: {error}"
                    ) from error
        return sizes
