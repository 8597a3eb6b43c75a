"""Tickets of videos on their way through the native processor's own `__call__`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...compat import merged_arguments
from .request import Video, VideoTicket


def stand_ins(videos: Sequence[VideoTicket]) -> list[np.ndarray]:
    """For each video an int64 array (1, 1, 1, 1) of its ticket, which native processors count as a video."""
    return [np.full((1, 1, 1, 1), video.ticket, dtype=np.int64) for video in videos]


def in_place_of_videos(processing: Any, videos: Any) -> tuple[dict, list[str]]:
    """`pixel_values_videos`, tickets as int64 (N, 1, 1) in place of pixels, and the texts of the N videos."""
    tickets = _tickets(videos)
    inputs = {"pixel_values_videos": torch.tensor(tickets, dtype=torch.int64).view(-1, 1, 1)}
    return inputs, [processing.processed(ticket).replacement for ticket in tickets]


def store_video(processing: Any, kwargs: Mapping[str, Any], video: Video) -> int:
    """Store a video of a call of the processing class, and return its ticket.

    Raises:
        ImageError: If it cannot be used.
    """
    asked = merged_arguments(processing, kwargs)["videos_kwargs"]
    return processing.state.videos.ticket(processing.native(), video, asked)


def written_inside(media: Sequence[Any]) -> list[int | None]:
    """For each image and video of a row, its ticket if it is to be written into the ids, else None."""
    return [None if _is_beside(item) else item.ticket for item in media]


def only_beside(carried: Sequence[Any], media: Sequence[Any]) -> list[Any]:
    """Those entries of `carried`, one for each image and video of a row, that travel in `pixel_values`."""
    return [ticket for ticket, item in zip(carried, media, strict=True) if _is_beside(item)]


def _is_beside(item: Any) -> bool:
    return not isinstance(item, VideoTicket) or item.beside


def _tickets(videos: Any) -> list[int]:
    if isinstance(videos, np.ndarray):
        return [int(ticket) for ticket in videos.flatten()]
    return [ticket for entry in videos for ticket in _tickets(entry)]


def beside(conversation: list[dict]) -> list[dict]:
    """A copy of a normalized conversation whose videos' tickets travel in `pixel_values`, not in the ids."""
    return [
        message | {"content": [_beside(block) for block in message["content"]]}
        if message.get("content")
        else message
        for message in conversation
    ]


def _beside(block: dict) -> dict:
    return block | {"video": block["video"].carried_beside()} if "video" in block else block
