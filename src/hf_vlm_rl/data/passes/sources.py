"""Where rows come from: a file, or whatever else gives records in a fixed order."""

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...errors import DataError
from . import tar_file
from .column_types import Kind
from .json_file import Record, is_list, records
from .options import Options
from .table import TABLES, file_records


class Reader(Protocol):
    """Makes rows of records; its `repr` names its options."""

    @property
    def options(self) -> Options:
        """The loader's keywords."""

    @property
    def kinds(self) -> dict[str, Kind]:
        """The columns that it makes itself."""

    def row(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of `kinds`, and of other columns. Raises DataError without the place."""


@dataclass(frozen=True)
class Source:
    """Records in a fixed order, and their reader.

    `state` changes, also in its `repr`, whenever the records do. `records` reads all of them at each call.
    """

    name: str
    state: Any
    reader: Reader
    records: Callable[[], Iterator[Record]]

    def key(self) -> str:
        """Differs whenever the rows could differ."""
        return repr((self.name, self.state, self.reader))


def file_source(path: str | os.PathLike, reader: Reader) -> Source:
    """A parquet, CSV or webdataset (.tar) file by its suffix; any other is a JSON Lines file or a JSON list.

    Raises:
        DataError: If it cannot be read or is something else.
    """
    path = Path(os.path.abspath(path))
    suffix = path.suffix.lower()
    read: Callable[[Path], Iterator[Record]] = records
    if suffix == ".tar":
        read = tar_file.records
    elif suffix in TABLES:
        read = functools.partial(file_records, strings=reader.options.strings)
    if read is records or not path.is_file():
        is_list(path)  # refuses other files at once
    return Source(str(path), file_state(path), reader, functools.partial(read, path))


def file_state(path: str | os.PathLike) -> tuple[int, int]:
    """What changes when a file does: its size and its time of change in nanoseconds."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def paths_of(path: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str | os.PathLike]:
    """One path or several, as several.

    Raises:
        ValueError: If there is none.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise ValueError("Got no files. Expected at least one path.")
    return paths


def folder_of(path: str | os.PathLike, image_folder: str | os.PathLike | None) -> str:
    """The absolute folder that image paths of a file are relative to.

    Raises:
        DataError: If it is given and there is none.
    """
    if image_folder is None:
        return os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(image_folder):
        raise DataError(f"There is no folder {str(image_folder)!r}. Expected the images of {path} below it.")
    return os.path.abspath(image_folder)
