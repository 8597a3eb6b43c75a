"""Rows of datasets as they are stored, of which no image is decoded."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import ImageError
from .images.reference import parse

IMAGE_COLUMNS = ("image", "images")
SLICE = 64  # rows that are read at once: each may hold the bytes of several images


def image_columns(dataset: Any) -> set[str]:
    """Names of a dataset's columns of images: those that TRL calls so, and those whose type is an image's."""
    # Lists of rows, and dicts of several evaluation sets, have no columns; streams may have no features.
    names = set(getattr(dataset, "column_names", None) or []) & set(IMAGE_COLUMNS)
    features = getattr(dataset, "features", None) or {}
    return names | {name for name, feature in features.items() if _is_image(feature)}


def first_rows(dataset: Any, count: int) -> list[Mapping[str, Any]]:
    """The first rows of a dataset or stream that has columns of images; rows of a stream are read again."""
    if not hasattr(dataset, "select"):
        return list((dataset.decode(False) if dataset.features else dataset).take(count))
    rows = dataset.select(range(min(count, len(dataset))))
    if rows.format["type"] == "custom":  # a transform of the user's makes what the trainer gets
        return list(rows)
    return rows.with_format("arrow")[:].to_pylist()


def row_of(dataset: Any, image: Any) -> int | None:
    """Index of the first row of a `Dataset` that holds an image that is not decoded; None if none does."""
    try:
        same = [parse(image), image if isinstance(image, str) else None]
    except ImageError:  # it is decoded, or nothing that can be looked for
        return None
    rows = dataset.with_format("arrow")
    for start in range(0, len(rows), SLICE):
        for index, row in enumerate(rows[start : start + SLICE].to_pylist(), start):
            if any(value is not None and value in same for value in values_in(row)):
                return index
    return None


def values_in(value: Any) -> Iterator[Any]:
    """A value of a row, and all values inside it."""
    yield value
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for each in inside:
        yield from values_in(each)


def _is_image(feature: Any) -> bool:
    """Whether a feature of `datasets` is an image or a list of images."""
    from datasets import Image  # takes a second to import, and whoever has features has it

    inner = getattr(feature, "feature", None)  # of lists
    return isinstance(feature, Image) or (inner is not None and _is_image(inner))
