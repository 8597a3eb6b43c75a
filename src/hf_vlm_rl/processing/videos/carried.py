"""Tickets of videos on their way through the native processor's own `__call__`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..deal_images import VideoTicket


def stand_ins(videos: Sequence[VideoTicket]) -> list[np.ndarray]:
    """For each video an array that native processors count as one, which holds its ticket."""
    return [np.full((1, 1, 1, 1), video.ticket, dtype=np.int64) for video in videos]


def tickets_of(videos: Any) -> list[int]:
    """The tickets of `stand_ins`, in lists of any depth."""
    if isinstance(videos, np.ndarray):
        return [int(ticket) for ticket in videos.flatten()]
    return [ticket for entry in videos for ticket in tickets_of(entry)]


def beside(conversation: list[dict]) -> list[dict]:
    """A copy of a normalized conversation whose videos have their tickets beside the ids."""
    return [
        message | {"content": [_beside(block) for block in message["content"]]}
        if message.get("content")
        else message
        for message in conversation
    ]


def _beside(block: dict) -> dict:
    return block | {"video": block["video"].carried_beside()} if "video" in block else block
