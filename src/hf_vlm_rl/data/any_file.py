"""Rows of whatever a path or Hub id holds, for the command line."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError

from ..errors import DataError
from ..processing.images.reference import is_image_list
from .llava import load_llava
from .messages import load_messages
from .mixture import load_mixture
from .passes.image_check import ImageRoot
from .passes.json_file import records

FORMATS = {
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def read_dataset(
    source: str, split: str, limit: int | None, on_error: Literal["raise", "skip"] = "raise"
) -> Iterable[Mapping[str, Any]]:
    """The rows of a file, a directory of `save_to_disk` or a dataset on the Hub.

    Raises:
        ValueError: If the file's suffix is unknown, there is no such split, or a row of conversations cannot
            be used and `on_error` is "raise".
    """
    path, folder = Path(source), None
    if path.suffix in FORMATS and not path.exists():
        raise FileNotFoundError(f"Got {source!r}, and there is no such file.")
    if path.is_file():
        if path.suffix not in FORMATS:
            raise ValueError(f"Got {source!r}. Expected a file with one of the suffixes {sorted(FORMATS)}.")
        loader = _loader(path)
        if loader is not None:
            dataset = loader(path, on_error=on_error)
        else:
            folder = path.parent
            try:
                dataset = load_dataset(FORMATS[path.suffix], data_files=str(path), split="train")
            except (DatasetGenerationError, RecursionError) as error:
                raise ValueError(f"{source} cannot be read: {error.__cause__ or error}") from error
    elif path.is_dir():
        try:
            dataset = load_from_disk(source)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{source} cannot be read ({type(error).__name__}: {error}). Expected a directory that "
                "save_to_disk wrote."
            ) from error
        if isinstance(dataset, DatasetDict):
            if split not in dataset:
                raise ValueError(
                    f"{source} has no split {split!r}. Expected one of {sorted(dataset)} in --split."
                )
            dataset = dataset[split]
    else:
        dataset = load_dataset(source, split=split)
    if limit is not None:
        dataset = dataset.select(range(min(limit, len(dataset))))
    return dataset if folder is None else _InFolder(dataset, folder)


def _loader(path: Path) -> Callable | None:
    """What reads a file whose rows are not in TRL's columns."""
    if FORMATS[path.suffix] == "yaml":
        return load_mixture
    if FORMATS[path.suffix] != "json":
        return None
    values = (record.value for record in records(path))
    first = next((value for value in values if isinstance(value, dict)), {})
    if "conversations" in first:
        return load_llava
    return load_messages if "messages" in first else None


class _InFolder:
    """The rows of a dataset, with paths of images from a folder on."""

    def __init__(self, dataset: Dataset, folder: Path):
        self.dataset, self.root = dataset, ImageRoot(str(folder))

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for index, row in enumerate(self.dataset):
            try:
                images = {name: self._placed(row[name]) for name in ("image", "images") if name in row}
            except DataError as error:
                raise DataError(f"Row {index}: {error}") from error
            yield row | images

    def _placed(self, value: Any) -> Any:
        if is_image_list(value):
            return [self._placed(image) for image in value]
        # A data: URL has no path.
        return (self.root.stored(value)["path"] or value) if isinstance(value, str) else value
