"""Rows of tables: parquet and CSV files, saved datasets and those of the Hub."""

from collections.abc import Iterator
from pathlib import Path

from datasets import ClassLabel, Dataset, load_dataset
from datasets.exceptions import DatasetGenerationError

from ...errors import DataError
from ..undecoded import stored_rows
from .json_file import Record

TABLES = {".parquet": "parquet", ".csv": "csv"}


def file_records(path: Path) -> Iterator[Record]:
    """The rows of a parquet or CSV file.

    Raises:
        DataError: If it cannot be read.
    """
    kind = TABLES[path.suffix.lower()]
    try:
        table = load_dataset(kind, data_files=str(path), split="train")
    except (DatasetGenerationError, OSError, ValueError) as error:  # ValueError: Arrow's own
        raise DataError(f"{path} cannot be read as {kind}: {error.__cause__ or error}") from error
    return table_records(table, str(path))


def table_records(table: Dataset, name: str) -> Iterator[Record]:
    """The rows of a dataset, with images as they are stored and labels by their names."""
    labels = {column: each for column, each in table.features.items() if isinstance(each, ClassLabel)}
    for number, row in enumerate(stored_rows(table)):
        for column, label in labels.items():
            value = row[column]
            row[column] = None if value is None or value < 0 else label.int2str(value)  # -1: not labelled
        yield Record(f"{name}, row {number}", row)
