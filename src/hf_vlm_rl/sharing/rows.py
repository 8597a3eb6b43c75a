"""From a backbone's resolved arguments to the layout that its decoder takes."""

from collections.abc import Sequence
from typing import Any

from ..resolve import RowImages
from .attention import ARGUMENT


def share_prefixes(backbone: Any, kwargs: dict[str, Any], rows: Sequence[RowImages]) -> dict[str, Any]:
    """What to add to the arguments of the stock backbone: a layout, or nothing.

    Args:
        backbone: A policy's backbone.
        kwargs: Its arguments after `resolve`.
        rows: The images of each row.
    """
    processing = backbone.processing_class
    tickets = [
        [ticket for ticket in row.tickets for _ in range(processing.processed(ticket).tokens)] for row in rows
    ]
    layout = backbone._sharing.layout(kwargs["input_ids"], tickets, processing._vlm.placeholder_id, kwargs)
    return {} if layout is None else {ARGUMENT: layout}
