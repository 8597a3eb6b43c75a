"""Boxes in original pixels become the numbers and the text that a model reads and writes, and back.

`[x1, y1, x2, y2]` in pixels of the original image is what datasets have. What a family's models were
trained on differs: pixels after the processor's resize (Qwen2.5-VL), thousandths of each side (InternVL,
Qwen2-VL, Qwen3-VL), location tokens with y first (PaliGemma). The family's row says which.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from .box_format import BoxFormat

Box = Sequence[float]


@dataclass(frozen=True)
class SmartResize:
    """The size to which a Qwen processor resizes an image.

    Both sides become multiples of `factor` pixels, and the area lies between `min_pixels` and `max_pixels`.
    """

    factor: int
    min_pixels: int
    max_pixels: int

    def __call__(self, size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) in pixels, of an image of (width, height)."""
        # transformers' own, on first use: rewards are imported without torch.
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

        width, height = size
        height, width = smart_resize(height, width, self.factor, self.min_pixels, self.max_pixels)
        return width, height


@dataclass(frozen=True)
class BoxCoordinates:
    """Translates boxes between original pixels and a model's own numbers.

    ```python
    boxes = BoxCoordinates.of(policy.processing_class)
    boxes.to_text([48, 240, 695, 371], image.size, "bird")  # for the prompt or the SFT target
    IoUReward(coordinates=boxes)  # reads what the model writes
    ```

    Small and picklable: it keeps numbers, not the processor.

    Args:
        format: How the model writes boxes.
        resize: The processor's resize; only for formats in its pixels.
    """

    format: BoxFormat
    resize: SmartResize | None = None

    @classmethod
    def of(cls, processing_class: Any) -> Self:
        """For the model of a processing class, with its image processor's own limits.

        Raises:
            TypeError: If it is not the processing class of a policy.
            ValueError: If the family's makers document no boxes.
        """
        # A native processor, which users pass by mistake, has no state.
        state = getattr(processing_class, "state", None)
        if state is None:
            raise TypeError(
                f"Got a {type(processing_class).__name__}. Expected the processing_class of an AutoVLMPolicy."
            )
        family = state.family
        if family.boxes is None:
            raise ValueError(
                f"The family {family.model_type!r} documents no boxes. Choose how its models shall write "
                "them, say so in the prompt, and pass BoxCoordinates.relative(1000), or .relative(1)."
            )
        if family.boxes.scale is not None:
            return cls(family.boxes)
        processor = processing_class.image_processor
        if not processor.do_resize:
            return cls(family.boxes)
        factor = processor.patch_size * processor.merge_size
        size = processor.size
        return cls(family.boxes, SmartResize(factor, size["shortest_edge"], size["longest_edge"]))

    @classmethod
    def relative(cls, scale: int) -> Self:
        """JSON with x and y from 0 to `scale` over the image; with 1, fractions of three decimals."""
        if scale < 1:
            raise ValueError(f"Got scale={scale}. Expected 1 (fractions), 1000 or another positive number.")
        return cls(BoxFormat(scale))

    def to_model(self, box: Box, image_size: tuple[int, int]) -> list[float]:
        """A box in the model's numbers, in the model's order.

        Args:
            box: [x1, y1, x2, y2] in pixels of the original image.
            image_size: (width, height) of the original image in pixels, as `PIL.Image.size`.

        Returns:
            Four ints, or floats of three decimals if the scale is 1; inside the image, also where a box
            sticks out by up to a pixel, as annotations do.

        Raises:
            ValueError: If the box is no box inside the image.
        """
        check_box(box, image_size)
        width, height = self._extent(image_size)
        numbers = [
            self._rounded(min(max(value / side, 0), 1) * extent)
            for value, side, extent in zip(box, tuple(image_size) * 2, (width, height) * 2, strict=True)
        ]
        return self._swapped(numbers)

    def to_pixels(self, numbers: Box, image_size: tuple[int, int]) -> list[float]:
        """The inverse of `to_model`: [x1, y1, x2, y2] in original pixels, not rounded.

        Args:
            numbers: A box in the model's numbers and order.
            image_size: (width, height) of the original image in pixels.
        """
        extents = self._extent(image_size) * 2
        return [
            value / extent * side
            for value, side, extent in zip(
                self._swapped(numbers), tuple(image_size) * 2, extents, strict=True
            )
        ]

    def to_text(
        self,
        boxes: Box | Sequence[Box],
        image_size: tuple[int, int],
        labels: str | Sequence[str] | None = None,
    ) -> str:
        """Boxes as the model writes them.

        Args:
            boxes: One box or a list, in pixels of the original image.
            image_size: (width, height) of the original image in pixels.
            labels: One label per box, or None.

        Raises:
            ValueError: If a box is none, or boxes and labels differ in number.
        """
        boxes = boxes.tolist() if hasattr(boxes, "tolist") else boxes  # arrays and tensors
        single = len(boxes) > 0 and not isinstance(boxes[0], Sequence)
        many: list[Any] = [boxes] if single else list(boxes)
        names = (
            [None] * len(many) if labels is None else [labels] if isinstance(labels, str) else list(labels)
        )
        if len(names) != len(many):
            raise ValueError(
                f"Got {len(many)} boxes and {len(names)} labels. Pass one label per box, or None."
            )
        pairs = [(self.to_model(box, image_size), name) for box, name in zip(many, names, strict=True)]
        return _WRITERS[self.format.syntax](pairs, single)

    def _extent(self, image_size: tuple[int, int]) -> tuple[float, float]:
        if self.format.scale is not None:
            return self.format.scale, self.format.scale
        return self.resize(image_size) if self.resize else image_size

    def _rounded(self, value: float) -> float:
        return round(value, 3) if self.format.scale == 1 else round(value)

    def _swapped(self, box: Box) -> list[float]:
        a, b, c, d = box
        return [b, a, d, c] if self.format.y_first else [a, b, c, d]


def check_box(box: Box, image_size: tuple[int, int]) -> None:
    """Refuse what is no box [x1, y1, x2, y2] inside an image of a (width, height), all in pixels.

    Annotations may stick out by up to a pixel.

    Raises:
        ValueError: If it is something else, as [x, y, width, height].
    """
    width, height = image_size
    if len(box) == 4:
        x1, y1, x2, y2 = box
        if -1 <= x1 < x2 <= width + 1 and -1 <= y1 < y2 <= height + 1 and width > 0 and height > 0:
            return
    raise ValueError(
        f"Got the box {list(box)} in an image of {width} x {height} pixels. Expected [x1, y1, x2, y2] "
        "inside the image, in its pixels, with x1 < x2 and y1 < y2; convert [x, y, width, height]."
    )


Pairs = list[tuple[list[float], str | None]]


def _json(pairs: Pairs, single: bool) -> str:
    objects = [{"bbox_2d": box} | ({} if name is None else {"label": name}) for box, name in pairs]
    return json.dumps(objects[0] if single else objects, ensure_ascii=False)


def _ref(pairs: Pairs, single: bool) -> str:
    # Boxes of one label share a pair of tags.
    by_name: dict[str | None, list] = {}
    for box, name in pairs:
        by_name.setdefault(name, []).append(box)
    return "".join(
        f"{'' if name is None else f'<ref>{name}</ref>'}<box>{boxes}</box>" for name, boxes in by_name.items()
    )


def _points(pairs: Pairs, single: bool) -> str:
    return "".join(
        ("" if name is None else f"<|object_ref_start|>{name}<|object_ref_end|>")
        + "<|box_start|>({},{}),({},{})<|box_end|>".format(*box)
        for box, name in pairs
    )


def _loc(pairs: Pairs, single: bool) -> str:
    return " ; ".join(
        "".join(f"<loc{value:04d}>" for value in box) + ("" if name is None else f" {name}")
        for box, name in pairs
    )


_WRITERS = {"json": _json, "ref": _ref, "points": _points, "loc": _loc}
