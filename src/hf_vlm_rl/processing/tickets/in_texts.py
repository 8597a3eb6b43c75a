"""Tickets in texts: one image as a few characters, which a trainer may copy, cut off and tokenize.

    <|image_pad|>[ticket 9f86d081884c7d65]

The mark begins with the model's own placeholder. Whoever tokenizes it without knowing of tickets gets a
placeholder that no ticket explains, and the policy refuses it: no image is lost without a word.
"""

import re
from collections.abc import Iterator, Sequence

from ...errors import TicketError
from ..conversation import escaped
from .in_ids import TICKET_BITS, TICKET_MASK

_DIGITS = TICKET_BITS // 4


class TextTickets:
    """Writes tickets into texts and finds them there."""

    def __init__(self, placeholder: str):
        self._placeholder = placeholder
        self._mark = re.compile(rf"{re.escape(placeholder)}\[ticket ([0-9a-f]{{{_DIGITS}}})\]")

    def write(self, ticket: int) -> str:
        """The mark of a ticket."""
        return f"{self._placeholder}[ticket {ticket & TICKET_MASK:0{_DIGITS}x}]"

    def inside(self, text: str) -> bool:
        """Whether a text has a mark."""
        return self._mark.search(text) is not None

    def escape(self, text: str) -> str:
        """A text that a model wrote, in which nothing is a mark."""
        return escaped(text, (self._placeholder,))

    def split(self, text: str) -> Iterator[str | int]:
        """A text's parts in order: texts that are not empty, and tickets.

        Raises:
            TicketError: If a mark is damaged.
        """
        for place, part in enumerate(self._mark.split(text)):
            if place % 2:
                value = int(part, 16)
                yield value - (1 << TICKET_BITS) if value >> (TICKET_BITS - 1) else value
            elif f"{self._placeholder}[ticket" in part:
                raise TicketError(
                    f"A ticket in the text {part[-80:]!r} was cut or edited. Expected the texts of "
                    "with_tickets as they were."
                )
            elif part:
                yield part

    def fill(self, text: str, written: str, tickets: Sequence[int]) -> str:
        """A text with a mark in the place of each image, where it has `written` once for each ticket."""
        first, *others = text.split(written)
        return first + "".join(
            self.write(ticket) + part for ticket, part in zip(tickets, others, strict=True)
        )
