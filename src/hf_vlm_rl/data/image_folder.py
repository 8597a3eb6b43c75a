"""A folder of images per class."""

import functools
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

from datasets import Dataset

from ..errors import DataError
from ..processing.images.formats import suffixes
from .llava import LlavaReader
from .passes.first_pass import Part
from .passes.json_file import Record
from .passes.options import LoadOptions, Options, column_names
from .passes.second_pass import build
from .passes.sources import Source

_FIELD = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")  # {{name}} is text, {name} a field
_IGNORED = (".", "Thumbs.db", "desktop.ini")  # beginnings of names


def _records(root: str, files: Sequence[str], question: str) -> Iterator[Record]:
    """The files below a folder, as records of LLaVA's form: an image, what is asked about it and its class.

    A DataError stands for what is no image, or in no class. `files` are relative to `root`, and in order.
    """
    readable = suffixes()
    for file in files:
        label, _, inner = file.partition(os.sep)
        suffix = os.path.splitext(file)[1].lower()
        path = os.path.join(root, file)
        turns = [{"from": "human", "value": question}, {"from": "gpt", "value": label}]
        value: Any = {"image": path, "conversations": turns}
        if not inner:
            value = DataError("the file is in no folder of a class; expected root/class/file")
        elif (shown := path.encode(errors="backslashreplace").decode()) != path:
            path, value = (
                shown,
                DataError("the name is no UTF-8; rename the file"),
            )  # nothing prints such a name
        elif suffix not in readable:
            value = DataError(f"the suffix {suffix!r} is no image's that is read")
        yield Record(path, value)


def load_image_folder(
    path: str | os.PathLike,
    question: str,
    *,
    choices: Sequence[str] | None = None,
    **options: Unpack[LoadOptions],
) -> Dataset:
    """Read a folder with a folder of images for each class.

    The class of a file is the first folder on its way from `path`. Names that begin with a dot, `Thumbs.db`
    and `desktop.ini` are passed over. The cache is used as long as the names of all files and all arguments
    stay the same.

    Args:
        path: The folder.
        question: What is asked about every image. `{choices}` in it becomes the classes, separated by
            commas; an image mark (`<image>`) the image, which comes first otherwise. `{{name}}` becomes
            `{name}`.
        choices: The classes in the order in which `{choices}` lists them, and others that have no images.
            Default: those that are there, sorted.
        **options: `answer`, `system`, `on_error` and others: `LoadOptions` explains them all.
            With `on_error="raise"`, files that are no images or lie in no class are named together, up to
            ten. `drop` and `strings` find no field here.

    Returns:
        Rows with the columns `prompt`, `images` (one) and the class as the answer, sorted by class and file.

    Raises:
        DataError: If there is no such folder, no image in it, a class that is not in `choices`, or a file
            that cannot be used.
        TypeError: If a keyword is unknown.
        ValueError: If the question has another field than `{choices}`.
    """
    loaded = Options(**options)
    return build([folder_part(path, question, choices, loaded)], loaded)


def folder_part(
    path: str | os.PathLike, question: str, choices: Sequence[str] | None, loaded: Options
) -> Part:
    """The images of a folder, with the question about each and its class.

    Raises:
        DataError, ValueError: As `load_image_folder`, but for the images themselves.
    """
    unknown = [field[0] for field in _FIELD.finditer(question) if field[2] not in (None, "choices")]
    if unknown:
        raise ValueError(
            f"Got the question {question!r} with {unknown}. Expected no field but {{choices}}; write "
            "{{name}} for a name in braces."
        )
    root = os.path.abspath(path)
    if not os.path.isdir(root):
        raise DataError(f"There is no folder {root!r}. Expected one with a folder of images per class.")
    files = tuple(sorted(_files(root), key=lambda file: file.split(os.sep)))
    classes = sorted({file.partition(os.sep)[0] for file in files if os.sep in file})
    if not classes:
        raise DataError(
            f"{root} has no folder with files; {len(files)} file(s) lie directly in it. Expected a folder of "
            "images per class."
        )
    choices = classes if choices is None else column_names(choices, "choices")
    unlisted = [name for name in classes if name not in choices]
    if unlisted:
        raise DataError(f"{root} has the classes {unlisted[:10]}, which are not in choices={list(choices)}.")
    listed = ", ".join(choices or classes)
    question = _FIELD.sub(lambda field: listed if field[2] else f"{{{field[1]}}}", question)
    names = hashlib.blake2b("\0".join(files).encode(errors="surrogateescape")).hexdigest()
    read = functools.partial(_records, root, files, question)
    if loaded.on_error == "raise":
        _refuse(list(read()))
    return Part(Source(root, (names, question), LlavaReader(root, loaded), read))


def _files(root: str) -> Iterator[str]:
    """The names of all files below a folder, links to other folders included.

    Raises:
        DataError: If a link leads to a folder that is reached on another way, too: to one that it lies in,
            without end, or to another class.
    """
    reached: dict[str, str] = {}  # real path of a folder to the path that led to it
    for folder, folders, names in os.walk(root, followlinks=True):
        first = reached.setdefault(os.path.realpath(folder), folder)
        if first != folder:
            raise DataError(f"{folder} leads to the same folder as {first}. Remove the link of the two.")
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith(_IGNORED):
                yield os.path.relpath(os.path.join(folder, name), root)


def _refuse(records: list[Record]) -> None:
    """Say at once what all is wrong with the files' names."""
    bad = [record for record in records if isinstance(record.value, DataError)]
    if bad:
        shown = "".join(f"\n  {record.place}: {record.value}" for record in bad[:10])
        more = f"\n  and {len(bad) - 10} more" if len(bad) > 10 else ""
        raise DataError(
            f'{len(bad)} of {len(records)} files cannot be used; move them, or pass on_error="skip":'
            f"{shown}{more}"
        )
