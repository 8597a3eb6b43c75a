"""Detection: all boxes of an image, matched one to one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ColumnError
from .base import need
from .columns import as_boxes, as_texts, listed
from .completions import strip_fence, words
from .iou import BoxReward, box_iou
from .written_boxes import WrittenBox, in_pixels, parse_boxes

COCO = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
# What models write where there is nothing to find, without white space, case and full stop.
_NOTHING = frozenset(("[]", "none", "null", "noobjects"))


@dataclass(frozen=True, kw_only=True)
class DetectionReward(BoxReward):
    """How well the answer's boxes match the right ones, one to one, with a price for missing and extra ones.

    Boxes (of equal labels, if there are labels) are matched so that the sum of IoUs is greatest. A pair earns
    the share of the thresholds that its IoU reaches, as in mAP. The reward is the sum of what pairs earn,
    over pairs + `missing` x unmatched right boxes + `extra` x unmatched written ones.

    Columns: `boxes`: lists of [x1, y1, x2, y2] in pixels of the original image; `labels`, if named: a
        string per box; with `coordinates`, the image's size as for `IoUReward`.
    Range: [0, 1]. Where there is nothing to find, an answer of "[]", "none", "null" or "no objects" is right.
    Malformed: 0, for no box where there is one, or more than 1,000.

    Needs scipy.

    Args:
        thresholds: IoUs that earn credit.
        missing: Weight of right boxes without a partner.
        extra: Weight of written boxes without a partner.
        labels: The column with the labels, or None if boxes have none. Case and punctuation do not count.

    Raises:
        ImportError: If scipy is not installed.
        ValueError: If there is no threshold, or a weight is negative.
    """

    thresholds: Sequence[float] = COCO
    missing: float = 1.0
    extra: float = 1.0
    labels: str | None = None
    column: str = "boxes"

    def __post_init__(self) -> None:
        if not self.thresholds or not all(0 < each <= 1 for each in self.thresholds):
            raise ValueError(f"Got thresholds={self.thresholds!r}. Expected numbers above 0, at most 1.")
        if self.missing < 0 or self.extra < 0:
            raise ValueError(f"Got missing={self.missing}, extra={self.extra}. Expected 0 or more.")

    target = staticmethod(as_boxes)

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """The right boxes, their labels and the image's size per row."""
        boxes = super().targets(columns, rows)
        labels: list = [()] * rows
        if self.labels is not None:
            labels = self.read(
                columns, self.labels, rows, lambda value: as_texts(value) if listed(value) else (), boxes
            )
            for row, (right, names) in enumerate(zip(boxes, labels, strict=True)):
                if None not in (right, names) and len(right) != len(names):
                    raise ColumnError(
                        f"{self.__name__}: row {row} has {len(right)} in {self.column!r} and {len(names)} in "
                        f"{self.labels!r}. Expected one label per box."
                    )
        sizes = self.sizes(columns, boxes)
        return [None if None in row else row for row in zip(boxes, labels, sizes, strict=True)]

    def parse_answer(self, answer: str) -> list[WrittenBox] | None:
        """The answer's boxes; an empty list if it says that there are none."""
        boxes = parse_boxes(answer)
        written = "".join(strip_fence(answer).lower().split()).rstrip(".")
        return boxes or ([] if written in _NOTHING else None)

    def score(self, parsed: list[WrittenBox], target: tuple) -> float:
        """What the pairs earn, over pairs and the price of missing and extra boxes."""
        right, names, size = target
        if not right:
            return float(not parsed)
        pairs = [(in_pixels(box, self.coordinates, size), box.label) for box in parsed]
        written = [(box, label) for box, label in pairs if box is not None]
        ious = box_iou([box for box, _ in written], right)
        if self.labels is not None:
            labels, expected = [words(label) for _, label in written], [words(name) for name in names]
            ious *= np.array([[a == b for b in expected] for a in labels]).reshape(ious.shape)
        matched = ious[need("scipy.optimize", "scipy").linear_sum_assignment(-ious)]
        earned = [sum(iou >= each for each in self.thresholds) / len(self.thresholds) for iou in matched]
        # A pair that reaches no threshold is one missing box and one extra.
        hits = sum(credit > 0 for credit in earned)
        total = hits + self.missing * (len(right) - hits) + self.extra * (len(parsed) - hits)
        return sum(earned) / total if total else 0.0


detection_reward = DetectionReward()
