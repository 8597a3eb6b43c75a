"""The first pass over the records: every row is checked and typed; none is kept."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Features
from datasets.utils import tqdm

from ...errors import DataError
from .column_types import Columns
from .image_check import ImageCheck
from .json_file import Record
from .options import Options, Skipped
from .sources import Source

BATCH = 100  # rows held at once; Python's garbage collection slows down many more
SOURCE = "source"


@dataclass(frozen=True)
class Part:
    """A source and how much of it.

    `label` is the value of the column `source`; None for no such column. `sample` says of the number of
    records which are taken, as booleans in their order; None: all.
    """

    source: Source
    label: str | None = None
    sample: Callable[[int], np.ndarray] | None = None

    def row(self, record: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns of a record's value, as `Reader.row` describes them, with the label."""
        if isinstance(record, DataError):
            raise record
        if not isinstance(record, dict):
            raise DataError(f"the row is {record!r:.80}; expected a JSON object")
        reader = self.source.reader
        columns, extras = reader.row(record)
        if self.label is not None:
            if SOURCE in columns or SOURCE in extras:
                raise DataError(
                    f"the row has a field {SOURCE!r} of its own, which a mixture writes; drop=[{SOURCE!r}]"
                )
            columns[SOURCE] = self.label
        # Their types are those of their values, as of other fields.
        answers = {name: columns.pop(name) for name, kind in reader.kinds.items() if kind == "unanswered"}
        return columns, answers | extras

    def rows(self, kept: bytes) -> Iterator[dict[str, Any]]:
        """The rows that `plan` found good: `kept` has a 1 for each record that is one of them."""
        for record, keep in zip(self.source.records(), kept, strict=True):
            if keep:
                columns, extras = self.row(record.value)
                yield columns | extras

    def taken(self) -> Iterator[bool]:
        """Which records are taken."""
        if self.sample is None:
            return itertools.repeat(True)
        return iter(self.sample(sum(1 for _ in self.source.records())))


@dataclass(frozen=True)
class Plan:
    """What the second pass needs: the rows' features, and for each part a byte a record, 1 if it is a row."""

    features: Features
    kept: list[bytes]


def plan(parts: list[Part], options: Options) -> Plan:
    """Read all records once.

    Raises:
        DataError: At the first bad row, if `on_error` says so; if no row is left.
    """
    columns, skipped, kept = Columns(), Skipped(options.on_error), []
    check = ImageCheck(options.check_images, options.verify_images)
    for part in parts:
        kinds = part.source.reader.kinds | ({} if part.label is None else {SOURCE: "string"})
        columns.declare(kinds, part.source.name)
    # A bar once there is something to wait for.
    with tqdm(desc="Checking rows", unit=" rows", delay=2) as bar:
        for part in parts:
            records, of_part = zip(part.source.records(), part.taken(), strict=False), bytearray()
            while batch := list(itertools.islice(records, BATCH)):
                read = [_read(part, record) if taken else None for record, taken in batch]
                faults = check([row[0].get("images", ()) if isinstance(row, tuple) else () for row in read])
                for (record, _), row, fault in zip(batch, read, faults, strict=True):
                    of_part.append(row is not None and _keep(record, row, fault, columns, skipped))
                bar.update(len(batch))
            if not of_part:
                raise DataError(f"{part.source.name} has no rows. Expected at least one.")
            kept.append(bytes(of_part))
    skipped.tell(sum(map(sum, kept)))
    return Plan(columns.features(), kept)


def _keep(record: Record, row: Any, fault: str | None, columns: Columns, skipped: Skipped) -> bool:
    """Whether a row is good; then it widens the columns."""
    try:
        if isinstance(row, DataError):
            raise row
        if fault is not None:
            raise DataError(fault)
        columns.add(row[1], record.place)
    except DataError as error:
        skipped.add(DataError(f"{record.place}: {error}"))
        return False
    return True


def _read(part: Part, record: Record) -> Any:
    try:
        return part.row(record.value)
    except DataError as error:
        return error
