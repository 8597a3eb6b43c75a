"""Rows of a dataset with their images as they are stored: as paths or encoded bytes, not as pixels."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from datasets import Dataset, Features, Image, LargeList, List

from ..errors import DataError
from ..processing.conversation import normalize
from ..processing.images.reference import as_list

MESSAGES = ("prompt", "messages", "completion", "chosen", "rejected")


def stored_rows(dataset: Dataset) -> Dataset:
    """A dataset with every `datasets.Image` as its {"bytes", "path"}; a set format is passed over."""
    dataset = dataset.with_format(None)  # a copy with information of its own
    # `cast_column` would write columns of lists to the cache, although their storage stays what it is.
    dataset.info.features = Features({name: undecoded(each) for name, each in dataset.features.items()})
    return dataset


def undecoded(feature: Any) -> Any:
    """A feature whose images, however deep, come as they are stored."""
    return with_images(feature, lambda image: Image(mode=image.mode, decode=False))


def with_images(feature: Any, image_type: Callable[[Image], Image]) -> Any:
    """A feature of `datasets` with `image_type` of its images' types in their place, however deep."""
    if isinstance(feature, Image):
        return image_type(feature)
    if isinstance(feature, Mapping):
        return {name: with_images(field, image_type) for name, field in feature.items()}
    if isinstance(feature, List | LargeList):
        changed = copy.copy(feature)
        changed.feature = with_images(feature.feature, image_type)
        return changed
    return feature


def stored_images(features: Features, row: Mapping[str, Any]) -> Iterator[Any]:
    """All images of an undecoded row: in `image` and `images`, wherever `datasets.Image` is, in messages."""
    for name, feature in features.items():
        if name in ("image", "images"):
            yield from as_list(row[name])
        elif name not in MESSAGES:
            yield from _walk(feature, row[name])
    for name in MESSAGES:
        if isinstance(row.get(name), list):
            yield from images_in_messages(row[name])


def images_in_messages(messages: list) -> Iterator[Any]:
    """The images in the blocks of a conversation, in order."""
    for message in normalize([messages])[0][0]:
        for block in message.get("content") or []:
            if "image" in block:
                yield block["image"]


def need_dataset(dataset: Any, function: str) -> None:
    """Refuse what has no length and no random access.

    Raises:
        DataError: If it is no `datasets.Dataset`.
    """
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"{function} got a {type(dataset).__name__}. Expected a datasets.Dataset: pass one "
            "split, and no stream."
        )


def _walk(feature: Any, value: Any) -> Iterator[Any]:
    if value is None:
        return
    if isinstance(feature, Image):
        yield value
    elif isinstance(feature, Mapping):
        for name, field in feature.items():
            yield from _walk(field, value[name])
    elif isinstance(feature, List | LargeList):
        for item in value:
            yield from _walk(feature.feature, item)
