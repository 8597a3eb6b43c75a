"""Which image belongs to which row of text."""

from collections.abc import Mapping, Sequence
from typing import Any

import PIL.Image

from ..errors import ImageError
from .images.options import note_options, options_of, with_image_options
from .images.read import load_rgb
from .images.reference import as_list, is_image_list


def images_by_row(images: Any, rows: list[str], placeholder: str) -> list[list]:
    """Assign images to rows of text.

    Args:
        images: None, one image, a flat list in the order of the placeholders, or one list (or None)
            per row.
        rows: B texts.
        placeholder: The string that stands for one image.

    Returns:
        B lists of images as they were given, as many as the row has placeholders.

    Raises:
        ImageError: If numbers differ. The message names the row.
    """
    counts = [row.count(placeholder) for row in rows]
    if images is None:
        by_row = [[] for _ in rows]
    elif not is_image_list(images):
        by_row = _deal([images], counts)
    elif any(entry is None or is_image_list(entry) for entry in images):
        if len(images) != len(rows):
            raise ImageError(
                f"Got images for {len(images)} rows but text for {len(rows)}. "
                "Pass one list of images (or None) per row."
            )
        by_row = [as_list(entry) for entry in images]
    else:
        by_row = _deal(list(images), counts)
    for index, (images_of_row, count) in enumerate(zip(by_row, counts, strict=True)):
        if len(images_of_row) != count:
            raise ImageError(
                f"{count} image placeholders ({placeholder!r}) but {len(images_of_row)} images. Pass one "
                "image per placeholder, in order; where the text only talks about "
                f"{placeholder!r}, rephrase it.",
                index,
            )
    return by_row


def load_row(images: list, row: int, options: Sequence[Mapping[str, Any]]) -> list[PIL.Image.Image]:
    """The images of one row, upright and RGB. All rows' at once would be gigabytes in a large batch.

    Args:
        images: As they were given.
        row: The row's index, for messages.
        options: What the text says of each image; noted on it, with what its dict says.

    Raises:
        ImageError: If an image is unusable. The message names the row and the image.
    """
    return [
        _load(image, row, index, said)
        for index, (image, said) in enumerate(zip(images, options, strict=True))
    ]


def _deal(images: list, counts: list[int]) -> list[list]:
    if len(images) != sum(counts):
        raise ImageError(
            f"Got {len(images)} images for {len(counts)} rows with {counts} image placeholders. "
            "Pass as many images as placeholders, or one list of images per row."
        )
    remaining = iter(images)
    return [[next(remaining) for _ in range(count)] for count in counts]


def _load(image: Any, row: int, index: int, options: Mapping[str, Any]) -> PIL.Image.Image:
    try:
        return note_options(load_rgb(image), options_of(with_image_options(image, options)))
    except ImageError as error:
        raise ImageError(str(error), row, f"image {index}") from error
