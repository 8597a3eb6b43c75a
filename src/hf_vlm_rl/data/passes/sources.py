"""Where rows come from: a JSON file, or whatever else gives records in a fixed order."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ...errors import DataError
from .column_types import Kind
from .json_file import Record, Start, is_list, records


class Reader(Protocol):
    """Makes rows of records; can be pickled, and its `repr` names its options."""

    @property
    def kinds(self) -> dict[str, Kind]:
        """The columns that it makes itself."""

    def row(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of `kinds`, and of other columns. Raises DataError without the place."""


class Source(Protocol):
    """Records in a fixed order, and their reader; can be pickled."""

    @property
    def reader(self) -> Reader:
        """Of the records."""

    @property
    def name(self) -> str:
        """For messages."""

    def key(self) -> str:
        """Differs whenever the rows could differ."""

    def records(self, start: Start | None = None) -> Iterator[Record]:
        """From the beginning, or from a record on."""

    def place(self, start: Start) -> str:
        """For messages: the file and the line."""


@dataclass(frozen=True)
class JsonSource:
    """A JSON Lines file or a JSON list.

    Raises:
        DataError: If it cannot be read or is something else.
    """

    path: Path
    reader: Reader
    listed: bool = field(init=False)
    state: tuple[int, int] = field(init=False)  # size in bytes, time of the last change in ns

    def __post_init__(self) -> None:
        path = Path(os.path.abspath(self.path))
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "listed", is_list(path))
        object.__setattr__(self, "state", _state(path))

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def key(self) -> str:
        """Path, size, time of change and the reader's options."""
        return repr((self.name, self.state, self.reader))

    def records(self, start: Start | None = None) -> Iterator[Record]:
        """What the file holds.

        Raises:
            DataError: If it changed since this object was made, or a list is no JSON.
        """
        if _state(self.path) != self.state:
            raise DataError(f"{self.path} has changed since it was loaded. Load it again.")
        return records(self.path, self.listed, start)

    def place(self, start: Start) -> str:
        """The file and the line, or the index in a list."""
        return f"{self.path}, {'index' if self.listed else 'line'} {start.number}"


def _state(path: Path) -> tuple[int, int]:
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
