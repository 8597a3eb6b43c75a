"""The first pass over the records: every row is checked, counted and typed; none is kept."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from datasets import Features
from datasets.utils import tqdm

from ...errors import DataError
from .column_types import Columns
from .image_check import ImageCheck
from .json_file import Record, Start
from .report import LoadReport, OnError
from .sources import Source

BATCH = 100  # rows held at once; Python's garbage collection slows down many more
SHARD = 100 * BATCH  # records that one process reads in a go
SOURCE = "source"


@dataclass(frozen=True)
class Part:
    """A source and how much of it.

    Attributes:
        source: Where the records come from.
        label: The value of the column `source`; None for no such column.
        sample: Of the number of records: which are taken, as booleans in their order. None: all.
    """

    source: Source
    label: str | None = None
    sample: Callable[[int], np.ndarray] | None = None

    def row(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns of a record, as `Reader.row` describes them, with the label."""
        columns, extras = self.source.reader.row(record)
        if self.label is not None:
            if SOURCE in columns or SOURCE in extras:
                raise DataError(
                    f"the row has a field {SOURCE!r} of its own, which a mixture writes; drop=[{SOURCE!r}]"
                )
            columns[SOURCE] = self.label
        return columns, extras


@dataclass(frozen=True)
class Shard:
    """Some records of a part, one after the other.

    Attributes:
        part: Its number.
        start: Of the first record.
        keep: For each record, whether it is a row.
    """

    part: int
    start: Start
    keep: np.ndarray


@dataclass
class Plan:
    """What the second pass needs.

    Attributes:
        features: Of the rows.
        shards: In order.
        report: Of what was left out.
    """

    features: Features
    shards: list[Shard] = field(default_factory=list)
    report: LoadReport = field(default_factory=LoadReport)


def plan(parts: list[Part], check: ImageCheck, on_error: OnError) -> Plan:
    """Read all records once.

    Raises:
        DataError: At the first bad row, if `on_error` says so; if no row is left.
    """
    columns, report, begun = Columns(), LoadReport(), []
    for part in parts:
        kinds = part.source.reader.kinds | ({} if part.label is None else {SOURCE: "string"})
        columns.declare(kinds, part.source.name.__str__)
    # A bar once there is something to wait for.
    with tqdm(desc="Checking rows", unit=" rows", delay=2) as bar:
        for number, part in enumerate(parts):
            taken: Iterator[bool] = itertools.repeat(True)
            if part.sample is not None:
                taken = iter(part.sample(sum(1 for _ in part.source.records())))
            records, position, keep = part.source.records(), 0, bytearray()
            while batch := list(itertools.islice(records, BATCH)):
                if position % SHARD == 0:
                    keep = bytearray()
                    begun.append((number, batch[0].start, keep))
                use = itertools.islice(taken, len(batch))
                keep += bytes(_check(part, batch, use, columns, check, on_error, report))
                position += len(batch)
                bar.update(len(batch))
            if position == 0:
                raise DataError(f"{part.source.name} has no rows. Expected at least one.")
    report.need_rows()
    shards = [Shard(part, start, np.frombuffer(keep, dtype=bool)) for part, start, keep in begun if any(keep)]
    return Plan(columns.features(), shards, report)


def rows(parts: list[Part], shard: Shard) -> Iterator[dict[str, Any]]:
    """The rows of a shard, which `plan` found good."""
    part = parts[shard.part]
    records = itertools.islice(part.source.records(shard.start), len(shard.keep))
    for record, keep in zip(records, shard.keep, strict=True):
        if keep:
            columns, extras = part.row(record.value)
            yield columns | extras


def _check(
    part: Part,
    records: list[Record],
    taken: Iterable[bool],
    columns: Columns,
    check: ImageCheck,
    on_error: OnError,
    report: LoadReport,
) -> list[bool]:
    """Which of the records are rows."""
    read = [_read(part, record) if use else None for record, use in zip(records, taken, strict=True)]
    faults = check([row[0].get("images", ()) if isinstance(row, tuple) else () for row in read])
    keep = []
    for record, row, fault in zip(records, read, faults, strict=True):
        if row is None:
            keep.append(False)
            continue
        place = functools.partial(part.source.place, record.start)
        try:
            if isinstance(row, DataError):
                raise row
            if fault is not None:
                raise DataError(fault)
            columns.add(row[1], place)
            report.rows += 1
            keep.append(True)
        except DataError as error:
            report.skip(DataError(f"{place()}: {error}"), on_error)
            keep.append(False)
    return keep


def _read(part: Part, record: Record) -> Any:
    if isinstance(record.value, DataError):
        return record.value
    if not isinstance(record.value, dict):
        return DataError(f"the row is {str(record.value)[:80]!r}; expected a JSON object")
    try:
        return part.row(record.value)
    except DataError as error:
        return error
