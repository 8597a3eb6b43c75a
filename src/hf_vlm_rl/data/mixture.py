"""VLM-R1's mixtures: a yaml file that names files of rows and how much of each."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import yaml
from datasets import Dataset

from ..errors import DataError
from . import bounded_yaml
from .first_row import any_source
from .llava import llava_source
from .messages import messages_source
from .passes.first_pass import Part
from .passes.options import LoadOptions, Options
from .passes.second_pass import build
from .passes.sources import folder_of

SOURCES = {None: any_source, "llava": llava_source, "messages": messages_source}
_STRATEGY = re.compile(r"(first|end|random):([0-9]+|[0-9]+(?:\.[0-9]+)?%)")
LONGEST = 20  # characters of N
KEYS = ("json_path", "sampling_strategy", "image_folder", "format", "name")


@dataclass(frozen=True)
class Sample:
    """`first:N`, `end:N` or `random:N`; N a number of rows or a percentage, such as `10%`.

    The seed of `random` is the mixture's, and the number of the entry.

    Raises:
        DataError: If it is none of these.
    """

    text: str
    seed: tuple[int, int]

    def __post_init__(self) -> None:
        strategy = _STRATEGY.fullmatch(self.text)
        amount = strategy[2] if strategy else "0"
        most = 100 if amount.endswith("%") else math.inf
        if len(amount) > LONGEST or not 0 < float(amount.rstrip("%")) <= most:
            raise DataError(
                f"sampling_strategy is {self.text!r}; expected all, first:N, end:N or random:N, N a number "
                "of rows from 1 on or a percentage such as 10%, at most 100%"
            )

    def __call__(self, total: int) -> np.ndarray:
        """Of `total` rows: which are taken, as booleans in their order.

        A percentage is rounded up.

        Raises:
            DataError: If there are not so many.
        """
        end, _, amount = self.text.partition(":")
        number = math.ceil(Fraction(amount[:-1]) * total / 100) if amount.endswith("%") else int(amount)
        if number > total:
            raise DataError(f"sampling_strategy is {self.text!r}, but there are {total} rows; expected all")
        taken = np.zeros(total, dtype=bool)
        match end:
            case "first":
                taken[:number] = True
            case "end":
                taken[total - number :] = True
            case "random":
                taken[np.random.default_rng(self.seed).choice(total, number, replace=False)] = True
        return taken


def load_mixture(
    path: str | os.PathLike,
    image_folder: str | os.PathLike | None = None,
    *,
    seed: int = 0,
    **options: Unpack[LoadOptions],
) -> Dataset:
    """Read a mixture of files.

    The yaml file holds `datasets`, a list of entries with `json_path` and, optionally, `sampling_strategy`
    (`all`, `first:N`, `end:N` or `random:N`; N a number of rows or a percentage, which is rounded up),
    `image_folder`, `format` (`llava` or `messages`; by default what the first row is) and `name`. Paths in it
    are relative to the yaml file. Rows are taken before they are checked: N counts bad rows, too.

    Args:
        path: The yaml file.
        image_folder: For entries that have none. Default: the folder of each JSON file.
        seed: Of `random:N`; what an entry draws depends on it, on its position and its size.
        **options: `answer`, `system`, `on_error` and others: `LoadOptions` explains them all.
            What is wrong with the yaml file itself is raised whatever `on_error` says.

    Returns:
        The rows in the order of the entries and of the files, with the columns of all entries (None where an
        entry has no such column) and `source`: an entry's `name`, or its `json_path` as written.

    Raises:
        DataError: If the yaml file or a file that it names cannot be used, or a row; names file and line.
        TypeError: If a keyword is unknown.
    """
    loaded = Options(**options)
    return build(mixture_parts(path, image_folder, seed, loaded), loaded)


def mixture_parts(
    path: str | os.PathLike, image_folder: str | os.PathLike | None, seed: int, options: Options
) -> list[Part]:
    """The files of a mixture, each with its reader and the rows that are taken.

    Raises:
        DataError: If the yaml file or a file that it names cannot be used.
    """
    parts = []
    for position, entry in enumerate(_entries(path)):
        try:
            parts.append(_part(entry, Path(path), image_folder, seed, position, options))
        except DataError as error:
            raise DataError(f"{path}, datasets[{position}]: {error}") from error
    return parts


def _entries(path: str | os.PathLike) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            mixture = bounded_yaml.load(file)
    except OSError as error:
        raise DataError(
            f"Cannot read {str(path)!r}: {error.strerror or error}. Expected a yaml file."
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{path} is not yaml: {error}") from error
    entries = mixture.get("datasets") if isinstance(mixture, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} holds {mixture!r:.80}. Expected 'datasets:' with a list of entries.")
    return entries


def _part(
    entry: Any,
    mixture: Path,
    image_folder: str | os.PathLike | None,
    seed: int,
    position: int,
    options: Options,
) -> Part:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("json_path"), str):
        raise DataError(f"the entry is {entry!r:.80}; expected a json_path")
    unknown = [key for key in entry if key not in KEYS]
    if unknown:
        raise DataError(f"the entry has {unknown}; expected {list(KEYS)}")
    kind = entry.get("format")
    if kind not in tuple(SOURCES):  # which also takes what cannot be a key
        raise DataError(f"the format is {kind!r}; expected one of {list(filter(None, SOURCES))}, or none")
    path = mixture.parent / entry["json_path"]
    if entry.get("image_folder") is not None:
        if not isinstance(entry["image_folder"], str):
            raise DataError(f"the image_folder is {entry['image_folder']!r:.80}; expected a path")
        image_folder = mixture.parent / entry["image_folder"]
    source = SOURCES[kind](path, folder_of(path, image_folder), options)
    strategy = str(entry.get("sampling_strategy") or "all").replace(" ", "")
    sample = None if strategy == "all" else Sample(strategy, (seed, position))
    return Part(source, str(entry.get("name") or entry["json_path"]), sample)
