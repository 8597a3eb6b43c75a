"""Rows of whatever a path or Hub id holds: the one reader of commands, examples and mixtures."""

import functools
import os
import re
from pathlib import Path
from typing import Unpack

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError

from ..errors import DataError
from ..loading.location import HUB_ID, folder_hint, hub_has
from .first_row import any_form, any_source
from .image_folder import folder_part
from .llava import LlavaReader
from .mixture import mixture_parts
from .passes.first_pass import Part
from .passes.options import LoadOptions, Options
from .passes.second_pass import build
from .passes.sources import Source, file_state, folder_of
from .passes.table import TABLES, table_records

MIXTURES = (".yaml", ".yml")
SUFFIXES = (".jsonl", ".json", *TABLES, ".tar", *MIXTURES)


def load_any(
    source: str | os.PathLike,
    *,
    split: str | None = "train",
    question: str | None = None,
    image_folder: str | os.PathLike | None = None,
    **options: Unpack[LoadOptions],
) -> Dataset:
    """Read rows of any form that this package knows, wherever they are.

    Rows have `conversations`, or `problem` and `solution` (LLaVA, VLM-R1: `load_llava`); `messages`, `prompt`
    or a preference pair (`load_messages`); or `question`, which is the prompt then, with `image`, `images` or
    `file_name`. The first row says which.

    Args:
        source: A file: JSON Lines or a JSON list (.jsonl, .json), .parquet, .csv, webdataset's .tar,
            or a mixture of such (.yaml: `load_mixture`). A folder: what `save_to_disk` wrote, .tar shards, or
            images with a metadata.jsonl, and what else `datasets` reads. Or a dataset's id on the Hub.
        split: Of a saved dataset, a folder or a dataset on the Hub; None: "test". A file has "train" alone.
        question: Of `load_image_folder`, for a folder that has a folder of images for each class.
        image_folder: Paths of images are relative to it. Default: the folder of the file, or the folder.
        **options: `answer`, `system`, `on_error` and others: `LoadOptions` explains them all.

    Returns:
        Rows with the columns `prompt` (messages), `images`, what the form gives, and every other field.

    Raises:
        DataError: If there is nothing to read, no such split, or a row cannot be used; names file and row.
        OSError: If the Hub has no such dataset, or cannot be reached.
        TypeError: If a keyword is unknown.
    """
    loaded = Options(**options)
    return build(parts_of(source, split, question, image_folder, loaded), loaded)


def parts_of(
    source: str | os.PathLike,
    split: str | None,
    question: str | None,
    image_folder: str | os.PathLike | None,
    loaded: Options,
) -> list[Part]:
    """The files of a source with their readers, as `load_any` finds them; no row is checked yet.

    Raises:
        DataError, OSError: As `load_any`, but for rows.
    """
    path, name = Path(source), os.fspath(source)
    pattern = set("*?[") & set(name) and not os.path.lexists(path)
    if not name or pattern or re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", name):
        raise DataError(
            f"Got {name!r}. Expected a file of rows ({', '.join(SUFFIXES)}), a folder, or user/name on the "
            "Hub. Addresses and patterns of names are not read; a mixture (.yaml) lists files."
        )
    if question is not None:
        parts = [folder_part(path, question, None, loaded)]
    elif path.suffix.lower() in MIXTURES:
        parts = mixture_parts(path, image_folder, 0, loaded)
    elif shards := sorted(path.glob("*.tar")):
        rows = [file.name for suffix in (".jsonl", *TABLES) for file in path.glob(f"*{suffix}")]
        if beside := [file for file in rows if (path / file).with_suffix(".tar") not in shards]:
            raise DataError(
                f"{source} holds archives (.tar), and {beside[:5]} beside them. Expected one of the two: "
                "name the file, move it, or list both in a mixture (.yaml)."
            )
        parts = [Part(any_source(shard, folder_of(shard, image_folder), loaded)) for shard in shards]
    elif path.is_file() or path.suffix.lower() in SUFFIXES:
        parts = [Part(any_source(path, folder_of(path, image_folder), loaded))]
    else:
        folder = os.path.abspath(path) if path.is_dir() else os.getcwd()
        return [Part(_dataset_source(name, split or "test", image_folder or folder, loaded))]
    if split not in (None, "train"):
        raise DataError(f"{source} has no splits, and split={split!r} was asked for. Expected none.")
    return parts


def _dataset_source(source: str, split: str, folder: str | os.PathLike, options: Options) -> Source:
    """The rows of a split of a folder, or of a dataset on the Hub."""
    table = _dataset(source, split)
    files = tuple(entry["filename"] for entry in table.cache_files)
    folder = folder_of(source, folder)
    state = (split, len(table), tuple((file, file_state(file)) for file in files))
    records = functools.partial(table_records, table, source)
    return any_form(Source(source, state, LlavaReader(folder, options), records), folder, options)


def _dataset(source: str, split: str) -> Dataset:
    path = Path(source)
    if not path.is_dir():
        _check_hub_id(source)
        return load_dataset(source, split=split)
    if not any((path / name).exists() for name in ("dataset_dict.json", "state.json")):
        try:
            splits = load_dataset(source)
            if all(set(columns) <= {"image", "label"} for columns in splits.column_names.values()):
                raise DataError(
                    f"{source} holds images without questions. Expected question='...', which is asked about "
                    "each; the folder that an image lies in is its answer."
                )
            return splits[split] if split in splits else load_dataset(source, split=split)
        except DataError:
            raise
        except (DatasetGenerationError, OSError, ValueError) as error:
            raise DataError(
                f"{source} cannot be read: {error.__cause__ or error}. Expected what save_to_disk wrote, "
                f"images with a metadata.jsonl, or files of rows; name one of those: {source}/rows.jsonl."
            ) from error
    try:
        saved = load_from_disk(source)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{source} cannot be read ({type(error).__name__}: {error}). Expected a directory that "
            "save_to_disk wrote."
        ) from error
    if not isinstance(saved, DatasetDict):
        return saved
    if split not in saved:
        raise DataError(f"{source} has no split {split!r}. Expected one of {sorted(saved)} in split=...")
    return saved[split]


def _check_hub_id(source: str) -> None:
    """Refuse a path that does not exist before `datasets` asks the Hub for it.

    Raises:
        DataError: If it is not of the form user/name; or if folders look like it, and the Hub has it not.
    """
    likely, hint = folder_hint(source)
    nor = ""
    if "/" in source and HUB_ID.fullmatch(source):
        if not likely or hub_has(source, "dataset"):
            return
        nor = ", and the Hub was not reached or shows no such dataset to you"
    raise DataError(
        f"There is no file and no folder {source!r}{nor}.{hint} Expected one with rows "
        f"({', '.join(SUFFIXES)}), or the id of a dataset on the Hub, user/name."
    )
