"""`BoxFormat`: how the models of a family write boxes, as data."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BoxFormat:
    """Numbers and text of a bounding box.

    Attributes:
        scale: Coordinates run from 0 to this over the width and over the height of the image, whatever
            its shape. None: they are pixels of the image as the image processor resizes it.
        syntax: How a box is written. "json": `{"bbox_2d": [x1, y1, x2, y2], "label": "cat"}`; "ref":
            `<ref>cat</ref><box>[[x1, y1, x2, y2]]</box>`; "points":
            `<|object_ref_start|>cat<|object_ref_end|><|box_start|>(x1,y1),(x2,y2)<|box_end|>`; "loc":
            `<locY1><locX1><locY2><locX2> cat`, y before x. PaliGemma has 1024 such tokens, `<loc0000>` at one
            edge and `<loc1023>` at the other, so its scale is 1023. Its makers round 1023 times the fraction
            of the side, and divide by 1023 when they evaluate (github.com/google-research/big_vision:
            `refcoco_mask2str` in pp/proj/paligemma/segmentation.py, `Evaluator.run` in
            evaluators/proj/paligemma/transfers/segmentation.py). Many scripts divide by 1024 instead.
    """

    scale: int | None
    syntax: Literal["json", "ref", "points", "loc"] = "json"

    @property
    def y_first(self) -> bool:
        """Whether boxes are [y1, x1, y2, x2]."""
        return self.syntax == "loc"
