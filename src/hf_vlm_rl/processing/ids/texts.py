"""From texts with tickets, as marks, to ids with tickets inside, and back.

Shapes: L tokens of a row.
"""

from collections.abc import Mapping
from typing import Any

from ...errors import ImageError, TicketError
from ..images.stored import RowNote
from ..tickets.beside_ids import decode_tickets
from ..tickets.in_texts import TextTickets
from .columns import image_of

HOW_TO = 'rows of dataset.map(policy.tokenizer.with_tickets, remove_columns="images")'


class TicketTexts:
    """Encodes texts with tickets by a processing class, and splits their ids again."""

    def __init__(self, processing: Any, marks: TextTickets):
        self._processing, self._marks = processing, marks

    def own(self, text: Any) -> bool:
        """Whether a text, or one of several, has a ticket, which the stock tokenizer cannot encode."""
        if not isinstance(text, str):
            return isinstance(text, list | tuple) and any(self.own(each) for each in text)
        return any(isinstance(part, int) for part in self._marks.split(text))

    def encode(self, index: int, text: str, special: bool, limit: int | None, side: str) -> list[int]:
        """One row of L ids with tickets inside, of a text with marks; `limit` cuts it on one `side`.

        Raises:
            ImageError: If an image would be cut; if the text has a placeholder that is no image.
        """
        row = self._ids(index, text, special)
        if limit is None or len(row) <= limit:
            return row
        what = f"its {len(row)} tokens would be cut to max_length={limit}"
        if special and self._processing.tokenizer.num_special_tokens_to_add():
            raise ImageError(
                f"{what}, with special tokens around them. Expected add_special_tokens=False, or a larger "
                "max_length.",
                index,
            )
        cut = len(row) - limit
        clean = self._processing.codec.erase(row)
        lost = clean[limit:] if side == "right" else clean[:cut]
        if self._processing.state.placeholder_id in lost:
            raise ImageError(
                f"{what}, and with them an image. Raise the trainer's length limits (max_length, "
                "max_prompt_length), or drop the row.",
                index,
            )
        return row[:limit] if side == "right" else row[cut:]

    def written(self, clean: list[int], encoded: Mapping[str, Any]) -> list[int]:
        """Write into clean ids the tickets that the processing class returned with them in `pixel_values`."""
        tickets = [ticket for ticket, _ in decode_tickets(encoded.get("pixel_values")) or []]
        lengths = [self._processing.processed(ticket).tokens for ticket in tickets]
        noted = [self._processing.state.keep(ticket, RowNote()) for ticket in tickets]
        return self._processing.codec.write(clean, noted, lengths)

    def parts(self, row: list[int]) -> list[list[int] | str]:
        """Split a row into the ids between its images, and the marks of these.

        An image's other tokens (of its start, its end and its row breaks) are dropped with its placeholders.
        """
        try:
            clean, places = self.places(row)
        except TicketError:  # a part of a row, which cuts an image
            return [self._processing.codec.erase(row)]
        parts: list[list[int] | str] = []
        position = 0
        for ticket, start, stop in places:
            parts += [clean[position:start], self._marks.write(self._processing.state.store.source(ticket))]
            position = stop
        return [*parts, clean[position:]]

    def places(self, row: list[int]) -> tuple[list[int], list[tuple[int, int, int]]]:
        """The clean ids of a row, and each image's ticket with where its tokens begin and end in them.

        Raises:
            TicketError: If a placeholder belongs to no ticket, or a ticket was damaged or cut.
        """
        clean, tickets = self._processing.codec.read(
            row, lambda ticket: self._processing.processed(ticket).tokens
        )
        places, position = [], 0
        for ticket in tickets:
            start, position = self._span(clean, position, ticket)
            places.append((ticket, start, position))
        return clean, places

    def _ids(self, index: int, text: str, special: bool) -> list[int]:
        state = self._processing.state
        parts = list(self._marks.split(text))
        if any(isinstance(part, str) and state.placeholder in part for part in parts):
            raise ImageError(
                f"the text contains {state.placeholder!r}, this model's placeholder for an image, and no "
                f"image for it. Expected {HOW_TO}.",
                index,
            )
        images = [image_of(state.store, part) for part in parts if isinstance(part, int)]
        native = "".join(state.placeholder if isinstance(part, int) else part for part in parts)
        try:
            encoded = self._processing(
                text=[native], images=[images] if images else None, add_special_tokens=special
            )
        except ImageError as error:
            raise error.at_row(index) from error
        return self.written(list(encoded["input_ids"][0]), encoded)

    def _span(self, clean: list[int], position: int, ticket: int) -> tuple[int, int]:
        """Where the next image's tokens begin and end."""
        placeholder = self._processing.state.placeholder_id
        processed = self._processing.processed(ticket)
        anchor = clean.index(placeholder, position)
        own = self._processing.tokenizer(processed.replacement, add_special_tokens=False)["input_ids"]
        if placeholder in own:
            start = anchor - own.index(placeholder)
            if start >= position and clean[start : start + len(own)] == own:
                return start, start + len(own)
        stop = anchor
        for _ in range(processed.tokens):
            stop = clean.index(placeholder, stop) + 1
        return anchor, stop
