"""From a backbone's resolved arguments to the layout that its decoder takes."""

from collections.abc import Sequence
from typing import Any

import torch

from ..resolve import RowImages
from .attention import ARGUMENT


def share_prefixes(backbone: Any, kwargs: dict[str, Any], rows: Sequence[RowImages]) -> dict[str, Any]:
    """What to add to the arguments of the stock backbone: a layout, or nothing.

    Args:
        backbone: A policy's backbone.
        kwargs: Its arguments after `resolve`.
        rows: The images of each row.
    """
    ids = kwargs["input_ids"]
    layout = backbone._sharing.layout(ids, lambda: keys_of_rows(backbone, ids, rows), kwargs)
    return {} if layout is None else {ARGUMENT: layout}


def keys_of_rows(backbone: Any, ids: torch.Tensor, rows: Sequence[RowImages]) -> torch.Tensor:
    """Ids in which image tokens are told apart by their image.

    Args:
        backbone: A policy's backbone.
        ids: (B, T), with clean placeholders.
        rows: The images of each row.

    Returns:
        (B, T) on the CPU: the ids, with a negative number per distinct image at image tokens.
    """
    processing = backbone.processing_class
    keys = ids.cpu().clone()
    places = keys == processing._vlm.placeholder_id
    numbers: dict[int, int] = {}
    for row, images in enumerate(rows):
        own = [
            -1 - numbers.setdefault(ticket, len(numbers))
            for ticket in images.tickets
            for _ in range(processing.processed(ticket).tokens)
        ]
        if own:
            keys[row, places[row]] = torch.tensor(own)
    return keys
