"""What a processing class knows beyond the native processor: one object, one attribute."""

import operator
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch

from ..families import VLMFamily
from .images.lru import ByteBoundedCache
from .images.processed import ProcessedImage
from .images.reference import is_image_list
from .images.store import ImageStore
from .images.stored import RowNote
from .tickets.in_ids import TicketCodec
from .videos.native import Videos

# A 13-tile InternVL image is 31 MB of float32 pixels: this holds the images of a large step.
PROCESSED_BYTES = 2 << 30


@dataclass(eq=False, repr=False)
class ProcessingState:
    """Family, store, caches and codec of one processing class.

    Attributes:
        family: The model's family.
        store: Where images live.
        placeholder_id: The id of one image feature (`config.image_token_id`).
        placeholder_texts: Strings that no user text may contain.
        ordinary_ids: Ids that tickets inside ids may use.
        never_sampled: Ids of image and video placeholders, and of what else is part of an image.
        placeholder: The string that the chat template writes for one image.
        one_image: The text of a prompt with one image.
        whole: True if the native `__call__` never calls `_process_images`, so that it must run as a unit.
        video_id: The id of one video feature; None if the model has none, or it is the image's.
        video_placeholder: The string that the chat template writes for one video; None if there is none.
        no_videos: Why the model takes no videos; "" if it does.
        images_defaults: Arguments that the native processor passes for images, by the native settings.
        native_eos: The checkpoint's own eos token, once it was replaced.
        ids_tokenizer: Made on first use.
        fronts: Addresses of servers that read these tickets.
    """

    family: VLMFamily
    store: ImageStore
    placeholder_id: int
    placeholder_texts: tuple[str, ...]
    ordinary_ids: InitVar[list[int]]
    never_sampled: tuple[int, ...]
    placeholder: str
    one_image: str
    whole: bool = False
    video_id: int | None = None
    video_placeholder: InitVar[str | None] = None
    no_videos: InitVar[str] = ""
    images_defaults: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    native_eos: str | None = field(default=None, init=False)
    ids_tokenizer: Any = field(default=None, init=False)
    fronts: set[str] = field(default_factory=set, init=False)

    def __post_init__(self, ordinary_ids: list[int], video_placeholder: str | None, no_videos: str) -> None:
        self.videos = Videos(self.store, self.placeholder_id, self.video_id, video_placeholder, no_videos)
        self.codec = TicketCodec(self.placeholder_id, ordinary_ids, self.video_id)
        self.processed: ByteBoundedCache[tuple[int, str], ProcessedImage] = ByteBoundedCache(
            PROCESSED_BYTES, operator.attrgetter("nbytes")
        )

    def marks(self, ids: torch.Tensor) -> torch.Tensor:
        """Which ids are placeholders of images or videos: a bool tensor of the same shape."""
        images = ids == self.placeholder_id
        return images if self.video_id is None else images | (ids == self.video_id)

    def behind(self, ids: Sequence[int]) -> int | None:
        """How many ids follow the last placeholder; None without a placeholder."""
        placeholders = self.codec.placeholders
        return next((count for count, token in enumerate(reversed(ids)) if token in placeholders), None)

    def erased(self, ids: Any) -> Any:
        """A row or rows of ids in which placeholders stand for tickets; no ids come back as they are."""
        if isinstance(ids, torch.Tensor | np.ndarray):
            on_host = torch.as_tensor(ids).cpu()
            if not bool(self.marks(on_host).any()):
                return on_host if isinstance(ids, torch.Tensor) else ids
            ids = on_host.tolist()
        if not is_image_list(ids) or not ids:
            return ids
        if isinstance(ids[0], int):
            return ids if self.behind(ids) is None else self.codec.erase(ids)
        return [self.erased(row) for row in ids]

    def encode_one_by_one(self) -> None:
        """Send images through the tower one by one: its output does not tell where one of several ends."""
        self.family = replace(self.family, batches_images=False)

    # Copies of a policy share the caches; a worker's copy starts with empty ones.
    def __deepcopy__(self, memo: dict) -> Self:
        return self

    def __getstate__(self) -> dict:
        # Without what is cached on use: `datasets` hashes this state and must find its own cache again.
        return self.__dict__ | {"images_defaults": {}, "ids_tokenizer": None, "fronts": set()}

    def keep(self, ticket: int, note: RowNote) -> int:
        """Keep a ticket's image on disk, with its row's note; returns the ticket of both."""
        stored = self.store.get(ticket)
        return self.store.put(
            stored.image, stored.options, note.columns, note.tail, keep=True, prompt=note.prompt
        )
