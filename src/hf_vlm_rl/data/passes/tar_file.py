"""Samples of webdataset archives, read in place: nothing is extracted, and no link is followed."""

import itertools
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...processing.images.formats import suffixes
from ...processing.images.reference import as_list
from .json_file import Record, whole


def records(path: Path) -> Iterator[Record]:
    """The samples of an uncompressed archive, in order.

    Files that follow each other and have the same name up to its first dot are a sample. The fields of its
    `.json` are those of the row, `.txt` is the field `text` and `.name.txt` the field `name`; its images are
    the row's.

    Raises:
        DataError: If the file is no such archive or is cut off.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            files = (member for member in archive if not member.isdir())
            for key, members in itertools.groupby(files, lambda member: _name(member)[0]):
                yield Record(f"{path}, sample {key!r}", _row(archive, members))
    except (OSError, tarfile.TarError) as error:
        raise DataError(
            f"{path} cannot be read as a tar archive: {error}. Expected an uncompressed one, "
            "as webdataset writes."
        ) from error


def _name(member: tarfile.TarInfo) -> tuple[str, str]:
    folder, file = os.path.split(member.name)
    stem, _, suffix = file.partition(".")
    return os.path.join(folder, stem), suffix


def _row(archive: tarfile.TarFile, members: Iterable[tarfile.TarInfo]) -> Any:
    """The row of a sample, or why there is none."""
    row: dict[str, Any] = {}
    images: dict[str, Any] = {}
    fault = None
    for member in members:  # all of them, also behind a fault
        suffix = _name(member)[1]
        last = os.path.splitext(member.name)[1].lower()
        if not member.isreg() or member.issparse():
            fault = f"{member.name!r} is a link, a device or a sparse file"
        elif not _is_unicode(member.name):
            fault = f"the name {member.name!r} is no UTF-8"
        elif last in suffixes():
            images[os.path.basename(member.name)] = {"bytes": _content(archive, member), "path": member.name}
        elif last == ".txt":
            row[suffix[: -len(".txt")] or "text"] = _content(archive, member).decode(errors="replace")
        elif last == ".json":
            try:
                text = _content(archive, member).decode()
                fields = whole(json.loads(text), text)
            except (ValueError, RecursionError) as error:
                fault = f"{member.name!r} is not JSON ({error})"
                continue
            if isinstance(fields, DataError):
                fault = f"{member.name!r}: {fields}"
                continue
            row |= fields if isinstance(fields, dict) else {"conversations": fields}
        else:
            fault = f"{member.name!r} is neither an image nor .json nor .txt"
    if fault is not None:
        return DataError(f"{fault}; expected images, one .json and .txt")
    # Fields that name images of the archive give their order.
    names = [os.path.basename(str(name)) for field in ("image", "images") for name in as_list(row.get(field))]
    if set(names) <= set(images):
        row.pop("image", None)
        row["images"] = [images[name] for name in names or images]
    elif images:
        return DataError(f"the row names the images {names}, and the sample has {list(images)}")
    return row


def _is_unicode(name: str) -> bool:
    with suppress(UnicodeEncodeError):
        return bool(name.encode())
    return False


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    data = b"" if file is None else file.read()
    if len(data) != member.size:
        raise tarfile.ReadError(f"{member.name!r} is cut off")
    return data
