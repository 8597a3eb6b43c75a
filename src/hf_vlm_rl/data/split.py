"""Train and validation rows such that no image is in both."""

import functools
import hashlib
import json
import logging
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from datasets.utils import tqdm
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..errors import DataError
from ..processing.images.reference import is_url
from .passes.image_check import ImageRoot
from .undecoded import need_dataset, stored_images, stored_rows

logger = logging.getLogger(__name__)
_HASH = functools.partial(hashlib.blake2b, digest_size=16)


def train_validation_split(
    dataset: Dataset,
    validation: float | int = 0.05,
    *,
    seed: int = 0,
    by: str | Sequence[str] = (),
) -> DatasetDict:
    """Split rows so that what validation measures was not trained on.

    ```python
    splits = train_validation_split(dataset, 200)
    trainer = GRPOTrainer(train_dataset=splits["train"], eval_dataset=splits["validation"], ...)
    ```

    Rows that share an image stay together, and so do rows that are connected by others. An image is the bytes
    of its file or those stored in the dataset: copies under several names are one image, another size or
    compression of a picture is another one. Images at http(s) addresses count by address. Rows without
    images stay together if their `prompt` is the same (without such a column, if they are the same in all).

    Nothing is decoded, and what is kept of an image is a hash. The same seed gives the same split.

    Args:
        dataset: Rows with images in columns or in messages. Not changed.
        validation: Share of the rows, in (0, 1), or their number.
        seed: Of the choice.
        by: Columns whose equal values also keep rows together (a patient, a document); None in them does not.

    Returns:
        `train` and `validation`, rows in their order. The smaller side is made of groups of connected rows,
        in random order as long as they fit. Where these do not give its wanted size, it is missed by at most
        half of the smallest group on the other side, and a warning is logged; if no group fits, the smallest
        of all is taken.

    Raises:
        DataError: If all rows are connected, an image file cannot be read (names the row), or the dataset
            has no column `by`.
        ValueError: If `validation` is no share or number of the rows.
    """
    need_dataset(dataset, "train_validation_split")
    wanted = _wanted(validation, len(dataset))
    columns = [by] if isinstance(by, str) else list(by)
    if missing := sorted(set(columns) - set(dataset.column_names)):
        raise DataError(f"Got by={missing}. Expected columns of the dataset: {dataset.column_names}.")
    groups = _connected(dataset, columns)
    if len(groups) == 1:
        raise DataError(
            f"All {len(dataset)} rows are connected by images they share (or by {columns}), so no image "
            "could be kept on one side. Drop what is in every row (a logo, a legend), or split by hand."
        )
    random.Random(seed).shuffle(groups)
    smaller = {row for group in _about(min(wanted, len(dataset) - wanted), groups) for row in group}
    sides = [row for row in range(len(dataset)) if row not in smaller], sorted(smaller)
    train, held_out = sides if 2 * wanted <= len(dataset) else sides[::-1]
    if len(held_out) != wanted:
        logger.warning(
            "train_validation_split: %d rows of %d for validation instead of %d: rows that share images stay "
            "together, in groups of up to %d rows.",
            len(held_out),
            len(dataset),
            wanted,
            max(map(len, groups)),
        )
    return DatasetDict(train=dataset.select(train), validation=dataset.select(held_out))


def _wanted(validation: float | int, rows: int) -> int:
    if isinstance(validation, bool) or not isinstance(validation, int | float):
        raise ValueError(f"Got {validation=}. Expected a share of the rows, or their number.")
    if isinstance(validation, float):
        if not 0 < validation < 1:
            raise ValueError(f"Got {validation=}. Expected a share in (0, 1), or a whole number of rows.")
        wanted = max(1, round(rows * validation))
    else:
        wanted = validation
    if not 1 <= wanted < rows:
        raise ValueError(f"Got {validation=} for {rows} rows. Expected at least one row on either side.")
    return wanted


def _about(wanted: int, groups: list[list[int]]) -> list[list[int]]:
    """Some, not all, of the groups, with about `wanted` rows: 1 to half of those in all groups.

    The groups, two or more, are in random order: those that still fit are taken, and the smallest of the
    others if that comes nearer.
    """
    taken, others = [], []
    for group in groups:
        if len(group) <= wanted:
            taken.append(group)
            wanted -= len(group)
        else:
            others.append(group)
    smallest = min(others, key=len)
    if not taken or (len(others) > 1 and len(smallest) - wanted < wanted):
        taken.append(smallest)
    return taken


def _connected(dataset: Dataset, columns: list[str]) -> list[list[int]]:
    """Rows in groups, ordered by their first rows: those that share a key, directly or through others."""
    first: dict[bytes, int] = {}
    pairs: list[tuple[int, int]] = []  # a row, and the first row that has one of its keys
    _hash_of_file.cache_clear()  # files may have changed
    rows = tqdm(stored_rows(dataset), total=len(dataset), desc="hashing images", delay=2)
    for index, row in enumerate(rows):
        try:
            keys = [image_hash(image) for image in stored_images(dataset.features, row)]
        except DataError as error:
            raise DataError(f"Row {index}: {error}") from error
        keys = keys or [_text_key(row)]
        keys += [_digest("by", name, _canonical(row[name])) for name in columns if row[name] is not None]
        pairs += [(index, first.setdefault(key, index)) for key in keys]
    places = tuple(zip(*pairs, strict=True))
    graph = coo_array((np.ones(len(pairs)), places), shape=(len(dataset), len(dataset)))
    groups = defaultdict(list)
    for index, group in enumerate(connected_components(graph, directed=False)[1]):
        groups[group].append(index)
    return list(groups.values())


def _text_key(row: Mapping[str, Any]) -> bytes:
    return _digest("text", _canonical(row["prompt"] if row.get("prompt") is not None else row))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def image_hash(image: Any) -> bytes:
    """16 bytes that say which images are the same: those whose files have the same bytes.

    An image is as datasets store it: a path, a `file://`, `data:` or http(s) URL (which counts by its
    address), encoded bytes, or a {"bytes", "path"} dict.

    Raises:
        DataError: If its file cannot be read, or it is something else.
    """
    stored = ImageRoot("", outside=True, options=True).stored(image)
    if stored["bytes"] is not None:
        return _digest(stored["bytes"])
    path = stored["path"]
    return _digest("address", path) if is_url(path) else _hash_of_file(path)


def _digest(*parts: str | bytes) -> bytes:
    """A hash of 16 bytes; of one `bytes`, that of a file with this content."""
    hashed = _HASH()
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else f"{part}\0".encode("utf-8", "surrogatepass"))
    return hashed.digest()


@functools.cache
def _hash_of_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, _HASH).digest()
    except OSError as error:
        raise DataError(
            f"Cannot read the image file {path[:200]!r}: {error.strerror or error}. Check the path, "
            "or drop the row."
        ) from error
