"""What an adapter and its base answer to one question, with the boxes that they write."""

import math
from dataclasses import dataclass
from typing import Any

from peft import PeftModel

from ..families.box_coordinates import BoxCoordinates
from ..loading.adapters.effect import check_base
from ..processing.images.size import image_size
from ..rewards.written_boxes import in_pixels, parse_boxes

PixelBox = tuple[int, int, int, int]


@dataclass(frozen=True)
class SideAnswer:
    """The answer of one side, "base" or "adapter".

    `boxes` are those in the text that lie in the image, as ((x1, y1, x2, y2), label): whole pixels of the
    upright image, and "" without a label. None are read for a family that documents none.
    """

    side: str
    text: str
    boxes: tuple[tuple[PixelBox, str], ...] = ()


def side_by_side(
    model: Any, question: str, image: Any = None, **generation_kwargs: Any
) -> tuple[SideAnswer, SideAnswer]:
    """Ask the base and the adapter the same, and give their answers in this order.

    The model is what `AutoVLMPolicy.from_pretrained` gives for an adapter, and the image None or what
    `load_rgb` takes. Without a length for `generate`, an answer has at most 512 tokens.

    Raises:
        ImageError: If the image is unusable.
        TypeError: If the model has no adapter.
        ValueError: If the question is empty, or the model without the adapter is not the base (PiSSA, OLoRA).
    """
    if not isinstance(model, PeftModel):
        raise TypeError(
            f"Got a {type(model).__name__} without an adapter. Expected what AutoVLMPolicy.from_pretrained "
            "gives for an adapter's folder or Hub id, without merge=True."
        )
    check_base(model)
    if not question.strip():
        raise ValueError("Got an empty question. Expected the words to ask the model.")
    with model.disable_adapter():
        base = model.chat(question, image, **generation_kwargs)
    adapted = model.chat(question, image, **generation_kwargs)
    has_boxes = model.family.boxes is not None
    coordinates = BoxCoordinates.of(model.processing_class) if has_boxes else None
    size = None if image is None else image_size(image)
    return (
        SideAnswer("base", base, _boxes(base, coordinates, size)),
        SideAnswer("adapter", adapted, _boxes(adapted, coordinates, size)),
    )


def _boxes(
    text: str, coordinates: BoxCoordinates | None, size: tuple[int, int] | None
) -> tuple[tuple[PixelBox, str], ...]:
    """The boxes of a text, cut off at the image's edges; those outside of it are left out."""
    if coordinates is None or size is None:
        return ()
    boxes = []
    for written in parse_boxes(text) or ():
        box = in_pixels(written, coordinates, size)
        if box is None:
            continue
        x1, y1 = (max(0, math.floor(value)) for value in box[:2])
        x2, y2 = (min(side, math.ceil(value)) for value, side in zip(box[2:], size, strict=True))
        if x1 < x2 and y1 < y2:
            boxes.append(((x1, y1, x2, y2), written.label))
    return tuple(boxes)
