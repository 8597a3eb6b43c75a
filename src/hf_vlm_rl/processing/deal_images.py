"""Which image or video belongs to which row of text."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import PIL.Image

from ..errors import ImageError
from .callers import place_of
from .images.options import note_options, options_of, with_image_options
from .images.reference import as_list, is_image_list
from .videos.native import Videos
from .videos.request import Video, VideoTicket, as_video, is_video


def images_by_row(
    images: Any, rows: list[str], placeholder: str, video_placeholder: str | None = None
) -> list[list]:
    """Assign images to B rows of text: a list for each row, with one image for each placeholder.

    `images` is None, one image, a flat list in the order of the placeholders, or one list (or None) per row;
    with a video placeholder, videos of the rows are among them.

    Raises:
        ImageError: If numbers differ. The message names the row.
    """
    counts = [row.count(placeholder) for row in rows]
    if video_placeholder:
        counts = [count + row.count(video_placeholder) for count, row in zip(counts, rows, strict=True)]
    if images is None:
        by_row: list[list] = [[] for _ in rows]
    elif not is_image_list(images):
        by_row = _deal([images], counts)
    elif any(entry is None or is_image_list(entry) for entry in images):
        if len(images) != len(rows):
            raise ImageError(
                f"Got images for {len(images)} rows but text for {len(rows)}. "
                "Pass one list of images (or None) per row."
            )
        by_row = [as_list(entry) for entry in images]
    else:
        by_row = _deal(list(images), counts)
    for index, (images_of_row, count) in enumerate(zip(by_row, counts, strict=True)):
        if len(images_of_row) != count:
            raise ImageError(
                f"{count} image placeholders ({placeholder!r}) but {len(images_of_row)} images. Pass one "
                "image per placeholder, in order, or a prompt of messages, which gets them by itself; where "
                f"the text only talks about {placeholder!r}, rephrase it.",
                index,
            )
    return by_row


def videos_by_row(videos: Any, rows: list[str], placeholder: str | None) -> list[list[Video]]:
    """Assign videos, None or one list (or None) for each row, to B rows of text: one for each placeholder.

    Raises:
        ImageError: If numbers differ. The message names the row.
    """
    entries = [None] * len(rows) if videos is None else videos
    if not is_image_list(entries) or len(entries) != len(rows):
        raise ImageError(f"Got videos for other rows than the {len(rows)} of text. Pass a list for each row.")
    by_row = [[as_video(video) for video in as_list(entry)] for entry in entries]
    for index, (row, own) in enumerate(zip(rows, by_row, strict=True)):
        count = row.count(placeholder) if placeholder else 0
        if len(own) != count and (own or videos is not None):
            raise ImageError(
                f"{count} video placeholders ({placeholder!r}) but {len(own)} videos. Pass one per "
                "placeholder, in order.",
                index,
            )
    return by_row


def media_by_row(images: Any, videos: Any, rows: list[str], placeholder: str, taken: Videos) -> list[list]:
    """Assign images and videos to B rows of text: lists of images and `Video`s in the order of placeholders.

    Without `videos`, entries of `images` may be videos.

    Raises:
        ImageError: If numbers or kinds differ. The message names the row.
        UnsupportedModelError: If there are videos and the model takes none.
    """
    video_placeholder = taken.placeholder
    if videos is None and not _holds_video(images):
        return images_by_row(images, rows, placeholder)
    taken.check()
    if videos is None:
        mixed = images_by_row(images, rows, placeholder, video_placeholder)
        own = [[as_video(entry).carried_beside() for entry in row if is_video(entry)] for row in mixed]
        mixed = [[entry for entry in row if not is_video(entry)] for row in mixed]
    else:
        mixed = images_by_row(images, rows, placeholder)
        own = videos_by_row(videos, rows, video_placeholder)
    return [
        _in_order(*parts, (placeholder, video_placeholder), index)
        for index, parts in enumerate(zip(mixed, own, rows, strict=True))
    ]


def _holds_video(images: Any) -> bool:
    if is_image_list(images):
        return any(map(_holds_video, images))
    return is_video(images)


def _in_order(images: list, videos: list[Video], row: str, marks: tuple[str, str | None], index: int) -> list:
    if not videos:
        return images
    kinds = re.findall("|".join(f"({re.escape(mark)})" for mark in marks if mark), row)
    kinds = [bool(kind[0]) if isinstance(kind, tuple) else True for kind in kinds]
    if kinds.count(False) != len(videos) or kinds.count(True) != len(images):
        raise ImageError(
            f"{kinds.count(True)} image and {kinds.count(False)} video placeholders {marks}, but "
            f"{len(images)} images and {len(videos)} videos. Pass one per placeholder, in order.",
            index,
        )
    waiting = iter(images), iter(videos)
    return [next(waiting[0] if kind else waiting[1]) for kind in kinds]


def load_row(
    media: list,
    row: int,
    options: Sequence[Mapping[str, Any]],
    load_rgb: Callable[[Any], PIL.Image.Image],
    store_video: Callable[[Video], int],
) -> list[PIL.Image.Image | VideoTicket]:
    """Decode the images and store the videos of one row; those of a large batch would be gigabytes.

    `options` are those that the text holds for each image; noted on it, with those of its dict.

    Raises:
        ImageError: If one is unusable. The message names the row and the image.
    """
    next_options = iter(options)
    return [
        _load(item, row, index, {} if isinstance(item, Video) else next(next_options), load_rgb, store_video)
        for index, item in enumerate(media)
    ]


def _deal(images: list, counts: list[int]) -> list[list]:
    if len(images) != sum(counts):
        raise ImageError(
            f"Got {len(images)} images for {len(counts)} rows with {counts} image placeholders. "
            "Pass as many images as placeholders, or one list of images per row."
        )
    remaining = iter(images)
    return [[next(remaining) for _ in range(count)] for count in counts]


def _load(
    image: Any,
    row: int,
    index: int,
    options: Mapping[str, Any],
    load_rgb: Callable[[Any], PIL.Image.Image],
    store_video: Callable[[Video], int],
) -> Any:
    video = isinstance(image, Video)
    try:
        if video:
            return VideoTicket(store_video(image), image.beside)
        return note_options(load_rgb(image), options_of(with_image_options(image, options)))
    except ImageError as error:
        place = f"{'video' if video else 'image'} {index}"
        raise ImageError(f"{error}{'' if video else place_of(image)}", row, place) from error
