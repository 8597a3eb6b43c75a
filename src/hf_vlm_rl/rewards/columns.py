"""Columns of the dataset, as trainers hand them to reward functions, checked row by row."""

import json
import math
import numbers
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

from ..errors import ColumnError
from ..processing.images.reference import column_images

# Where trainers put the images of a row.
IMAGES = ("images", "image")


def read_column(
    columns: Mapping[str, Any],
    name: str,
    rows: int,
    reader: Callable,
    reward: str,
    targets: Sequence | None = None,
) -> list:
    """One value per row, as `reader` gives it; None where the column has None: the reward skips the row.

    The reader turns a value into what the reward compares with, or raises ValueError with what it expected.
    It is not called for None, nor for rows whose target is None: of another task, they may hold anything.

    Raises:
        ColumnError: If the column is missing, of another length, or `reader` refuses a value.
    """
    if name not in columns:
        known = sorted(key for key, value in columns.items() if isinstance(value, list))
        raise ColumnError(
            f"{reward} reads the column {name!r}, which is missing; there are {known}. Add it to the "
            "dataset, or name the column in the reward's arguments. Where only some rows have a value, "
            "put None into the others."
        )
    values: Any = columns[name]
    # Trainers pass lists; users' own calls also arrays and columns of `datasets`.
    sized = isinstance(values, Sized) and not isinstance(values, str | bytes | Mapping)
    if not sized or len(values) != rows:
        raise ColumnError(
            f"{reward}: the column {name!r} came as {values!r:.200}. Expected a list with one value for "
            f"each of the {rows} completions."
        )
    read = []
    for row, value in enumerate(values):
        try:
            skipped = value is None or (targets is not None and targets[row] is None)
            read.append(None if skipped else reader(value))
        except ValueError as error:
            raise ColumnError(
                f"{reward}: row {row} of the column {name!r} is {value!r:.200}. Expected {error}. Fix the "
                "row; None means that the reward does not apply to it."
            ) from error
    return read


def as_text(value: Any) -> str:
    """A string or a number, as a string."""
    value = listed(value)
    if isinstance(value, bool) or not isinstance(value, str | numbers.Real):
        raise ValueError("a string or a number")
    return str(value)


def as_texts(value: Any) -> tuple[str, ...]:
    """A string or a non-empty list of acceptable ones.

    3.0 is also "3": in a column of mixed numbers, whole ones are floats.
    """
    value = listed(value)
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise ValueError("a string, or a non-empty list of strings")
    whole = [int(each) for each in values if isinstance(each, float) and each.is_integer()]
    return tuple(as_text(each) for each in (*values, *whole))


def as_number(value: Any) -> float:
    """A finite number."""
    value = listed(value)
    try:
        if not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value):
            return float(value)
    except OverflowError:  # an integer beyond all floats
        pass
    raise ValueError("a finite number")


def listed(value: Any) -> Any:
    """An array of numpy, torch or others, as datasets give it in those formats, as a list."""
    return value.tolist() if hasattr(value, "tolist") else value


def as_ids(value: Any) -> list:
    """Token ids."""
    value = listed(value)
    if not isinstance(value, list | tuple):
        raise ValueError("a list of token ids, as trainers pass it")
    return list(value)


def as_box(value: Any) -> tuple[float, float, float, float]:
    """`[x1, y1, x2, y2]` with x1 < x2 and y1 < y2; or the same as text, which VLM-R1's files have."""
    expected = ValueError("a box [x1, y1, x2, y2] of finite numbers with x1 < x2 and y1 < y2")
    try:
        box = json.loads(value) if isinstance(value, str) else listed(value)
        x1, y1, x2, y2 = map(as_number, box if isinstance(box, list | tuple) else ())
    except (ValueError, RecursionError):
        raise expected from None
    if not (x1 < x2 and y1 < y2):
        raise expected
    return x1, y1, x2, y2


def as_boxes(value: Any) -> list[tuple[float, float, float, float]]:
    """A list of boxes, maybe empty."""
    value = listed(value)
    if not isinstance(value, list | tuple):
        raise ValueError("a list of boxes [x1, y1, x2, y2]")
    return [as_box(box) for box in value]


def read_images(columns: Mapping[str, Any], rows: int, reward: str) -> list[list] | None:
    """The images of each row, from the columns of `IMAGES` that are there; None without such a column."""
    names = [name for name in IMAGES if name in columns]
    values = [read_column(columns, name, rows, lambda images: images, reward) for name in names]
    if not names:
        return None
    return [column_images(dict(zip(names, own, strict=True))) for own in zip(*values, strict=True)]
