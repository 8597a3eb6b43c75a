"""Boxes in what a model wrote, in the syntaxes of the families, and the sizes of their images."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ColumnError, ImageError
from ..families.box_coordinates import BoxCoordinates
from ..processing.images.reference import as_list
from ..processing.images.size import image_size
from .columns import IMAGES, as_number, listed, read_column

# More is no answer.
MAX_BOXES = 1_000

# Possessive quantifiers: nothing is tried twice, so time is linear.
_N = r"\s*+([-+]?(?:\d{1,9}+(?:\.\d*+)?|\.\d++))\s*+"
_FOUR = re.compile(rf"[\[(]{_N},{_N}(?:,|\)\s*+,\s*+\(){_N},{_N}[\])]")
_LOC = re.compile(r"<loc(\d{4})><loc(\d{4})><loc(\d{4})><loc(\d{4})>([^<;]*+)")
_OBJECT = re.compile(r"\{[^{}]*+\}?")
_LABEL = re.compile(
    r"""["'](?:label|name|category|class|ref)["']\s*+:\s*+(?:"([^"{}]{0,200}+)"|'([^'{}]{0,200}+)')"""
)
_FENCE = re.compile(r"```\w*")
_MARKUP = re.compile(r"<[^<>]{1,40}+>")


@dataclass(frozen=True)
class WrittenBox:
    """A box as it was written.

    Attributes:
        numbers: Four numbers, in the order of the text.
        label: What stands with it, without markup; "" for nothing.
    """

    numbers: tuple[float, float, float, float]
    label: str = ""


def parse_boxes(text: str) -> list[WrittenBox] | None:
    """The boxes in a text: JSON objects, location tokens, or four numbers in brackets.

    Understood are `{"bbox_2d": [...], "label": "cat"}`, also in Python's quotes, cut off or in a code fence;
    `<ref>cat</ref><box>[[...]]</box>`; `<|box_start|>(x1,y1),(x2,y2)<|box_end|>`, both also without their
    special tokens, which trainers drop; `<loc0010><loc0020><loc0030><loc0040> cat`; plain `[x1, y1, x2, y2]`.

    Args:
        text: An answer; linear time.

    Returns:
        The boxes in order; None if there are more than `MAX_BOXES`.
    """
    text = _FENCE.sub(" ", text)
    without_objects = _OBJECT.sub(lambda each: " " if _FOUR.search(each[0]) else each[0], text)
    boxes = _with_tokens(text) + _in_objects(text) + _in_brackets(without_objects)
    return boxes if len(boxes) <= MAX_BOXES else None


def _with_tokens(text: str) -> list[WrittenBox]:
    return [WrittenBox(_floats(match.groups()[:4]), _clean(match[5])) for match in _LOC.finditer(text)]


def _in_objects(text: str) -> list[WrittenBox]:
    boxes = []
    for match in _OBJECT.finditer(text):
        label = _LABEL.search(match[0])
        name = (label[1] or label[2] or "").strip() if label else ""
        boxes += [WrittenBox(_floats(box), name) for box in _FOUR.findall(match[0])]
    return boxes


def _in_brackets(text: str) -> list[WrittenBox]:
    boxes: list[WrittenBox] = []
    end = 0
    for match in _FOUR.finditer(text):
        # A label stands before its boxes.
        label = _clean(_MARKUP.sub(" ", text[max(end, match.start() - 200) : match.start()]))
        boxes.append(WrittenBox(_floats(match.groups()), label or (boxes[-1].label if boxes else "")))
        end = match.end()
    return boxes


def _floats(numbers: tuple[str, ...]) -> tuple[float, float, float, float]:
    a, b, c, d = map(float, numbers)
    return a, b, c, d


def _clean(label: str) -> str:
    return label.strip(" \t\n,;:.-[]()")


def in_pixels(
    box: WrittenBox, coordinates: BoxCoordinates | None, size: tuple[int, int]
) -> list[float] | None:
    """[x1, y1, x2, y2] in the space of the dataset's boxes, or None if the corners are not in order."""
    numbers = list(box.numbers)
    x1, y1, x2, y2 = coordinates.to_pixels(numbers, size) if coordinates else numbers
    return [x1, y1, x2, y2] if x1 < x2 and y1 < y2 else None


def image_sizes(columns: Mapping[str, Any], targets: Sequence, reward: str) -> list[tuple[int, int] | None]:
    """(width, height) per row, in pixels: from `image_size`, `width` and `height`, `image` or `images`.

    Rows whose target is None have none.

    Raises:
        ColumnError: If none of these columns is there, or a row has no size in it.
    """

    def read(name: str, reader: Callable) -> list:
        return read_column(columns, name, len(targets), reader, reward, targets)

    if "image_size" in columns:
        return read("image_size", _as_size)
    if "width" in columns and "height" in columns:
        pairs = zip(read("width", _as_side), read("height", _as_side), strict=True)
        return [None if None in pair else pair for pair in pairs]
    if images := [name for name in IMAGES if name in columns]:
        return read(images[0], _size_of_image)
    raise ColumnError(
        f"{reward} needs the size of each original image in pixels. Add a column image_size with "
        "(width, height), or columns width and height, or keep image or images."
    )


def _as_side(value: Any) -> int:
    number = as_number(value)
    if number < 1 or number != int(number):
        raise ValueError("a number of pixels, 1 or more")
    return int(number)


def _as_size(value: Any) -> tuple[int, int]:
    value = listed(value)
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("(width, height) in pixels")
    return _as_side(value[0]), _as_side(value[1])


def _size_of_image(value: Any) -> tuple[int, int]:
    images = as_list(value)
    try:
        if len(images) == 1:
            return image_size(images[0], fetch=False)
    except ImageError:  # told below, with the column's row
        pass
    raise ValueError("one image that can be read here; for others, add a column image_size")
