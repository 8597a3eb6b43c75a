"""Rows of tables: parquet and CSV files, saved datasets and those of the Hub."""

import csv
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, Features, Value, load_dataset
from datasets.exceptions import DatasetGenerationError

from ...errors import DataError
from ..undecoded import stored_rows
from .json_file import Record

TABLES = {".parquet": "parquet", ".csv": "csv"}


def file_records(path: Path, strings: Container[str] = ()) -> Iterator[Record]:
    """The rows of a parquet or CSV file; of a CSV, the columns `strings` stay text.

    Raises:
        DataError: If it cannot be read.
    """
    kind = TABLES[path.suffix.lower()]
    try:
        if kind == "csv":
            return _records_of(_csv_columns(path, strings), path)
        table = load_dataset(kind, data_files=str(path), split="train")
    except (DatasetGenerationError, OSError, ValueError) as error:  # ValueError: Arrow's and pandas' own
        raise DataError(f"{path} cannot be read as {kind}: {error.__cause__ or error}") from error
    return table_records(table, str(path))


def _csv_columns(path: Path, strings: Container[str]) -> dict[str, list]:
    """A column of which each value is written as Python writes numbers or bools has these; others are text.

    So "007", "1.50" and "NA" stay what they are. An empty cell is None.
    """
    with open(path, newline="", encoding="utf-8-sig") as file:
        names = next(csv.reader(file), [])
    features = Features(dict.fromkeys(names, Value("string")))
    options = {"keep_default_na": False, "na_values": [""], "encoding": "utf-8-sig"}
    cells = load_dataset("csv", data_files=str(path), split="train", features=features, **options)
    columns = {}
    for name in names:
        values = cells[name][:]
        kind = str if name in strings else _type_of([value for value in values if value is not None])
        columns[name] = [None if value is None else kind(value) for value in values]
    return columns


def _records_of(columns: Mapping[str, list], path: Path) -> Iterator[Record]:
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        yield Record(f"{path}, row {number}", dict(zip(columns, row, strict=True)))


def _type_of(texts: Sequence[str]) -> Callable[[str], Any]:
    if texts and all(text in ("True", "False") for text in texts):
        return "True".__eq__
    if all(map(_is_whole, texts)):
        return int
    return float if all(_is_whole(text) or _is_float(text) for text in texts) else str


def _is_whole(text: str) -> bool:
    return len(text) < 20 and text.lstrip("-").isdecimal() and str(int(text)) == text


def _is_float(text: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(float(text)) and repr(float(text)) == text
    return False


def table_records(table: Dataset, name: str) -> Iterator[Record]:
    """The rows of a dataset, with images as they are stored and labels by their names."""
    labels = {column: each for column, each in table.features.items() if isinstance(each, ClassLabel)}
    for number, row in enumerate(stored_rows(table)):
        for column, label in labels.items():
            value = row[column]
            row[column] = None if value is None or value < 0 else label.int2str(value)  # -1: not labelled
        yield Record(f"{name}, row {number}", row)
