"""The codec that writes a ticket into an image's own placeholder run.

Trainers that pass nothing but `input_ids` still have to carry images. An image of n tokens appears
in the ids as n placeholders; the codec replaces those after the first with *digits*: ordinary
vocabulary ids, each standing for k bits of the 64-bit ticket, and a checksum digit.

    placeholder placeholder placeholder ... placeholder        (clean)
    placeholder digit_1 ... digit_m checksum placeholder ...   (with a ticket)

Special tokens that interrupt a run (the row breaks of Pixtral) are stepped over. Length, attention
mask and positions stay those of the native sequence, every id is a legal index for an embedding or
a gather, and padding, repeating or shuffling rows keeps the ticket intact.
"""

import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...errors import TicketError

# Ends messages about numbers of tokens that do not fit.
SETTINGS = " If image settings changed after the row was encoded, encode it again."
TICKET_BITS = 64
TICKET_MASK = (1 << TICKET_BITS) - 1
_NONE_BESIDE: Iterator[int] = iter(())


class TicketCodec:
    """Writes tickets into placeholder runs and reads them back.

    Args:
        placeholder_id: The id that stands for one image feature.
        ordinary_ids: Ids that may serve as digits: in the embedding, not special, not padding.
            The first 2^k of them in ascending order are used.
        video_id: The id that stands for one video feature, where videos have an id of their own.

    Raises:
        ValueError: If there are fewer than two ordinary ids.
    """

    def __init__(self, placeholder_id: int, ordinary_ids: Iterable[int], video_id: int | None = None):
        self.placeholders = tuple(dict.fromkeys((placeholder_id, *([] if video_id is None else [video_id]))))
        usable = sorted(set(ordinary_ids) - set(self.placeholders))
        if len(usable) < 2:
            raise ValueError(f"Got {len(usable)} ordinary ids; a ticket needs at least 2.")
        self.placeholder_id = placeholder_id
        self._bits = len(usable).bit_length() - 1
        self._alphabet = usable[: 1 << self._bits]
        self._value = {token: value for value, token in enumerate(self._alphabet)}
        self._digits = math.ceil(TICKET_BITS / self._bits)
        # Another tokenizer gives another salt, so its tickets and rows fail their checksums here.
        self.salt = zlib.crc32(repr((placeholder_id, self._alphabet)).encode())

    @property
    def length(self) -> int:
        """Placeholders a run must have to carry a ticket: anchor, digits and checksum."""
        return 1 + self._digits + 1

    def checksum(self, ids: Sequence[int]) -> int:
        """A 31-bit checksum of a row's ids, which differs between tokenizers."""
        return zlib.crc32(b"".join(int(token).to_bytes(4, "little") for token in ids), self.salt) >> 1

    def encode(self, ticket: int) -> list[int]:
        """The `length - 1` ids that follow the anchor placeholder, most significant digit first."""
        value = ticket & TICKET_MASK
        shifts = range((self._digits - 1) * self._bits, -1, -self._bits)
        digits = [(value >> shift) & (len(self._alphabet) - 1) for shift in shifts]
        return [self._alphabet[digit] for digit in [*digits, self._checksum(value)]]

    def decode(self, ids: Sequence[int]) -> int | None:
        """The ticket in `ids` (as `encode` returned it), or None if they do not hold one."""
        if len(ids) != self._digits + 1 or any(token not in self._value for token in ids):
            return None
        *digits, checksum = (self._value[token] for token in ids)
        value = 0
        for digit in digits:
            value = value << self._bits | digit
        if value > TICKET_MASK or checksum != self._checksum(value):
            return None
        return value - (1 << TICKET_BITS) if value >> (TICKET_BITS - 1) else value

    def write(self, ids: Sequence[int], tickets: Sequence[int | None], lengths: Sequence[int]) -> list[int]:
        """Write one ticket per image into a row of clean ids.

        Args:
            ids: A row with `sum(lengths)` placeholders.
            tickets: One per image or video, in order; None leaves its placeholders clean.
            lengths: Placeholders of each image, in order.

        Returns:
            A new row of the same length.

        Raises:
            TicketError: If an image's first run is shorter than `length`.
        """
        written = list(ids)
        places = [index for index, token in enumerate(written) if token in self.placeholders]
        start = 0
        for image, (ticket, count) in enumerate(zip(tickets, lengths, strict=True)):
            own = places[start : start + count][: self.length]
            start += count
            if ticket is None:
                continue
            reachable = self._reachable(ids, own)
            if reachable < self.length:
                raise TicketError(
                    f"Image {image} begins with {reachable} placeholder tokens in a row, but a ticket "
                    f"needs {self.length}. Use a larger image (or a larger min_pixels); of a video, "
                    "larger or fewer frames."
                )
            for place, digit in zip(own[1:], self.encode(ticket), strict=True):
                written[place] = digit
        return written

    def read(
        self,
        ids: Sequence[int],
        length_of: Callable[[int], int],
        beside: Iterator[int] = _NONE_BESIDE,
        known: Callable[[int], bool] | None = None,
    ) -> tuple[list[int], list[int]]:
        """Restore a row: the inverse of `write`.

        Args:
            ids: A row of ids.
            length_of: Number of placeholders of a ticket's image.
            beside: Tickets that came beside the ids, for the clean placeholders, in order.
            known: Says whether a ticket exists; for rows with tickets beside them, in which text behind a
                clean placeholder may look like a ticket.

        Returns:
            The clean row and its tickets in order.

        Raises:
            TicketError: If a placeholder belongs to no ticket, or a ticket was damaged or cut.
        """
        clean, tickets = list(ids), list[int]()
        position = 0
        while (anchor := self._anchor(clean, position)) is not None:
            ticket = self._take(clean, anchor, known)
            ticket = next(beside, None) if ticket is None else ticket
            if ticket is None:
                raise TicketError(self._no_ticket(clean, anchor) + (SETTINGS if tickets else ""))
            position = anchor
            for count in range(length_of(ticket)):
                place = _index(clean, clean[anchor], position)
                if place is None:
                    raise TicketError(
                        f"The image at position {anchor} has {count} of its {length_of(ticket)} tokens "
                        "left: the row was truncated. Raise the length limit, or drop the row." + SETTINGS
                    )
                position = place + 1
            tickets.append(ticket)
        return clean, tickets

    def erase(self, ids: Sequence[int]) -> list[int]:
        """The row with every readable ticket turned back into placeholders, for display."""
        return self._erased(ids)[0]

    def candidates(self, ids: Sequence[int]) -> list[int]:
        """The tickets of a row in order, and what text behind an image may spell by chance."""
        return self._erased(ids)[1]

    def has_ticket(self, ids: Sequence[int], known: Callable[[int], bool]) -> bool:
        """Whether a row holds a ticket that exists; text behind a placeholder may look like one."""
        row = list(ids)
        return any(
            self._take(row, place, known) is not None
            for place, token in enumerate(ids)
            if token in self.placeholders
        )

    def _erased(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        clean, tickets = list(ids), list[int]()
        position = 0
        while (anchor := self._anchor(clean, position)) is not None:
            if (ticket := self._take(clean, anchor)) is not None:
                tickets.append(ticket)
            position = anchor + 1
        return clean, tickets

    def _anchor(self, row: list[int], start: int) -> int | None:
        """Where the next placeholder of an image or a video is."""
        places = (_index(row, token, start) for token in self.placeholders)
        return min((place for place in places if place is not None), default=None)

    def _take(self, row: list[int], anchor: int, known: Callable[[int], bool] | None = None) -> int | None:
        """Decode the ticket after `anchor` and put placeholders in its place; None if none is known."""
        places = []
        for place in range(anchor + 1, len(row)):
            if row[place] in self._value:
                places.append(place)
            if row[place] in self.placeholders or len(places) == self.length - 1:
                break
        ticket = self.decode([row[place] for place in places])
        if ticket is None or (known is not None and not known(ticket)):
            return None
        for place in places:
            row[place] = row[anchor]
        return ticket

    def _reachable(self, ids: Sequence[int], own: list[int]) -> int:
        """How many of the placeholders at `own` come before an ordinary id, which would read as a digit."""
        for count, (before, after) in enumerate(itertools.pairwise(own), start=1):
            if any(token in self._value for token in ids[before + 1 : after]):
                return count
        return len(own)

    def _checksum(self, value: int) -> int:
        return zlib.crc32(value.to_bytes(8, "little"), self.salt) & (len(self._alphabet) - 1)

    def _no_ticket(self, ids: Sequence[int], anchor: int) -> str:
        after = ids[anchor + 1 : anchor + 2]
        if after and after[0] in self._value:
            return (
                f"The ticket at position {anchor} is damaged: its checksum does not fit. Expected ids "
                "that encode_prompt of this model's processing class made, not truncated or edited."
            )
        return (
            f"There are image placeholders from position {anchor} on, but no image came with them. "
            "Pass the images to the processing class together with the text (GRPO, DPO: in an "
            "`image`/`images` column), or encode the prompt with encode_prompt; a trainer that hands the "
            "model nothing but ids takes policy.tokenizer and rows of its with_tickets (docs/trainers.md). "
            "Where there was an image, a length limit or packing may have cut it: raise the trainer's "
            "limits, or pack with packing_strategy='bfd'."
        )


def _index(row: Sequence[int], value: int, start: int) -> int | None:
    try:
        return row.index(value, start)
    except ValueError:
        return None
