"""Rewards of boxes: what they share, and intersection over union, for referring expressions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ColumnError
from ..families.box_coordinates import BoxCoordinates, check_box
from .base import AnswerReward
from .columns import as_box
from .written_boxes import WrittenBox, image_sizes, in_pixels, parse_boxes

Boxes = Sequence[Sequence[float]]


def box_iou(a: Boxes, b: Boxes) -> np.ndarray:
    """Intersection over union of every box of `a` with every one of `b`: (N, M) in [0, 1].

    The standard definition, as `torchvision.ops.box_iou`. Two boxes without area have 0.

    Args:
        a: (N, 4), [x1, y1, x2, y2].
        b: (M, 4).
    """
    left, right = (np.asarray(boxes, dtype=np.float64).reshape(-1, 4) for boxes in (a, b))
    area_a, area_b = ((boxes[:, 2:] - boxes[:, :2]).prod(axis=-1) for boxes in (left, right))
    low = np.maximum(left[:, None, :2], right[None, :, :2])
    high = np.minimum(left[:, None, 2:], right[None, :, 2:])
    overlap = np.clip(high - low, 0, None).prod(axis=-1)
    union = area_a[:, None] + area_b[None] - overlap
    return np.divide(overlap, union, out=np.zeros_like(overlap), where=union > 0)


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
        sizes = image_sizes(columns, boxes, self.__name__)
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


@dataclass(frozen=True, kw_only=True)
class IoUReward(BoxReward):
    """Intersection over union of the answer's one box with the right one.

    For the syntaxes of boxes see `parse_boxes`.

    Columns: `box`: [x1, y1, x2, y2] in pixels of the original image, as a list or as text; with
        `coordinates`, the image's size as `image_size` (width, height), as `width` and `height`, or as
        `image` or `images` themselves.
    Range: [0, 1]; with `threshold`, 0 or 1.
    Malformed: 0, for no box, two different ones, or corners out of order.

    Args:
        threshold: If given, 1 from this IoU on, and 0 below.

    Raises:
        ValueError: If the threshold is not more than 0 and at most 1.
    """

    threshold: float | None = None
    column: str = "box"

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise ValueError(f"Got threshold={self.threshold}. Expected more than 0 and at most 1, or None.")

    target = staticmethod(as_box)

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """The right box and the image's size (or None) per row."""
        boxes = super().targets(columns, rows)
        sizes = self.sizes(columns, [box and [box] for box in boxes])
        return [None if None in pair else pair for pair in zip(boxes, sizes, strict=True)]

    def parse_answer(self, answer: str) -> WrittenBox | None:
        """The one box of the answer."""
        boxes = parse_boxes(answer) or []
        return boxes[0] if len({box.numbers for box in boxes}) == 1 else None

    def score(self, parsed: WrittenBox, target: tuple) -> float:
        """The IoU."""
        right, size = target
        box = in_pixels(parsed, self.coordinates, size)
        if box is None:
            return 0.0
        value = float(box_iou([box], [right])[0, 0])
        return value if self.threshold is None else float(value >= self.threshold)


iou_reward = IoUReward()
