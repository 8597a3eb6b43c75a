"""A processing class that counts: its ids are the real ones, its images only as large as they need to be.

transformers' own `ProcessorMixin._get_num_multimodal_tokens` was measured and cannot replace it: on tiny
models it counts like the processor for eight families, counts marks and row breaks as image tokens for
internvl, idefics3 and mistral3, and is missing in smolvlm.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import PIL.Image

from ...processing.images.hashes import image_ticket
from ...processing.images.options import options_of, with_image_options
from ...processing.images.processed import ProcessedImage
from ...processing.images.reference import payload
from ...processing.images.size import image_size
from ...processing.images.store import ImageStore
from ...processing.images.stored import StoredImage, StoredVideo
from ...processing.videos.request import is_video

_SIZE = "hf_vlm_rl_size"


class Counter:
    """Stands for a processing class where only the number of tokens matters.

    `processing` is a copy of a policy's, whose store and caches are left alone, to be called with what
    `image` gives. With `pixels` it processes the images themselves, rather than one blank image of each size.
    """

    def __init__(self, processing_class: Any, pixels: bool = False):
        self.pixels = pixels or not processing_class.state.family.counts_by_size
        self._sizes: dict[str, tuple[int, int]] = {}
        state = copy.copy(processing_class.state)
        state.store, state.processed = _Store(self.pixels, state.store), _Tokens()
        self.processing = processing_class.replace_state(state)

    def image(self, image: Any) -> Any:
        """What to pass for an image: itself, or a pixel that says its size; videos are passed themselves.

        Raises:
            ImageError: If it is no image.
        """
        if self.pixels or is_video(image):
            return image
        options = options_of(image)
        if options:
            return with_image_options(self.image(payload(image)), options)
        path = image.get("path") if isinstance(image, Mapping) and image.get("bytes") is None else image
        if not isinstance(path, str):
            size = image_size(image)
        elif path in self._sizes:
            size = self._sizes[path]
        else:
            size = self._sizes[path] = image_size(path)
        stand_in = PIL.Image.new("RGB", (1, 1))
        stand_in.info[_SIZE] = size  # PIL's copies keep it
        return stand_in


class _Store:
    """What `VLMTokenizer` asks of an `ImageStore` in order to count; images stay until they are processed."""

    def __init__(self, pixels: bool, videos: ImageStore):
        self._pixels = pixels
        self._videos = videos
        self._tickets: dict[tuple, int] = {}
        self._waiting: dict[int, StoredImage] = {}

    def put(self, image: PIL.Image.Image, options: Mapping[str, Any]) -> int:
        """Videos do not come here: their frames are in the store of the processing class."""
        content = image_ticket(image) if self._pixels else _size(image)
        key = (content, json.dumps(options, sort_keys=True, default=repr))
        new = key not in self._tickets
        ticket = self._tickets.setdefault(key, len(self._tickets))
        if new:
            self._waiting[ticket] = StoredImage(image=image, options=options)
        return ticket

    def source(self, ticket: int) -> int:
        return ticket

    def get(self, ticket: int) -> StoredImage:
        if ticket not in self._waiting:
            return self._videos.get(ticket)
        stored = self._waiting.pop(ticket)
        if self._pixels or isinstance(stored.image, StoredVideo):
            return stored
        return replace(stored, image=PIL.Image.new("RGB", _size(stored.image)))


def _size(stand_in: PIL.Image.Image) -> tuple[int, int]:
    """(width, height) of what a stand-in stands for; it was resized itself where options say to what size."""
    return stand_in.info[_SIZE] if stand_in.size == (1, 1) else stand_in.size


class _Tokens(dict):
    """The cache of processed images without the tensors: text and number of tokens of every image so far."""

    def put(self, ticket: int, entry: ProcessedImage) -> None:
        self[ticket] = replace(entry, inputs={})
