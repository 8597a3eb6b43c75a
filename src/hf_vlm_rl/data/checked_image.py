"""A type of image columns whose errors name file and row, and which opens files within our bounds."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from datasets import Dataset, DatasetDict, Features, Image, IterableDataset, IterableDatasetDict

from ..errors import ImageError
from ..processing.callers import dataset_being_read
from ..processing.images.read import load_rgb
from ..processing.images.reference import is_stored, is_url
from ..processing.stored_rows import row_of, values_in
from .undecoded import undecoded, with_images

Rows = TypeVar("Rows", Dataset, IterableDataset, DatasetDict, IterableDatasetDict)


class CheckedImage(Image):
    """`datasets.Image`, for the formats and with the bounds of the images that a policy decodes itself.

    It equals a `datasets.Image` and is saved as one: what was saved and loaded has that again.
    """

    def decode_example(self, value: Any, token_per_repo_id: dict | None = None) -> Any:
        """The image, upright and in its mode.

        Raises:
            ImageError: If it cannot be decoded; names its file, and its row of the `Dataset` that is read.
        """
        if not is_stored(value) or _is_elsewhere(value):
            return super().decode_example(value, token_per_repo_id)
        try:
            return load_rgb(value, lambda image: image.convert(self.mode) if self.mode else image)
        except ImageError as error:
            dataset = dataset_being_read()
            raise ImageError(str(error), None if dataset is None else row_of(dataset, value)) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and (self.mode, self.decode) == (other.mode, other.decode)

    def __hash__(self) -> int:
        return hash((self.mode, self.decode))


def checked_images(dataset: Rows) -> Rows:
    """A dataset whose images are decoded within bounds, with errors that name file and row.

    Rows of this package's loaders are so from the beginning.

    Args:
        dataset: Rows, a stream of rows with features, or several splits. Columns of lists of images are
            written anew to `datasets`' cache.
    """
    if isinstance(dataset, DatasetDict | IterableDatasetDict):
        return type(dataset)({name: checked_images(split) for name, split in dataset.items()})
    for name, feature in (dataset.features or {}).items():
        if undecoded(feature) != feature:
            dataset = dataset.cast_column(name, checked(feature))
    return dataset


def checked(feature: Any) -> Any:
    """A feature whose images, however deep, are `CheckedImage`."""
    return with_images(feature, lambda image: CheckedImage(mode=image.mode, decode=image.decode))


def rows_or_errors(stream: IterableDataset) -> Iterator[Mapping[str, Any] | ImageError]:
    """The rows of a stream with features; the error in the place of a row whose image cannot be decoded."""
    features = {name: with_images(feature, _or_error) for name, feature in (stream.features or {}).items()}
    for row in stream.cast(Features(features)):
        yield next((value for value in values_in(row) if isinstance(value, ImageError)), row)


class _ImageOrError(CheckedImage):
    """Gives the error of an image in its place: a stream that raises has no next row."""

    def decode_example(self, value: Any, token_per_repo_id: dict | None = None) -> Any:
        try:
            return super().decode_example(value, token_per_repo_id)
        except ImageError as error:
            return error


def _or_error(image: Image) -> Image:
    return _ImageOrError(mode=image.mode, decode=image.decode)


def _is_elsewhere(stored: Mapping[str, Any]) -> bool:
    """Whether a file is one of the Hub or inside an archive: what `datasets` alone can open."""
    return stored["bytes"] is None and "://" in stored["path"] and not is_url(stored["path"])
