"""A tokenizer's backend for callers that go past the tokenizer."""

from collections.abc import Sequence
from typing import Any

from ...errors import TicketError
from ..tickets.in_texts import TextTickets


class TextBackend:
    """The backend of a tokenizer whose texts may have tickets: it tokenizes only texts without."""

    def __init__(self, backend: Any, marks: TextTickets):
        self._backend, self._marks = backend, marks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    @property
    def pre_tokenizer(self) -> Any:
        """None: what it says of bytes and tokens is not true of tickets."""

    @property
    def decoder(self) -> Any:
        """None: as `pre_tokenizer`."""

    def encode(self, sequence: Any, *args: Any, **kwargs: Any) -> Any:
        """The backend's `encode`.

        Raises:
            TicketError: If there is a ticket in the text.
        """
        self._check([sequence])
        return self._backend.encode(sequence, *args, **kwargs)

    def encode_batch(self, input: Sequence, *args: Any, **kwargs: Any) -> Any:
        """The backend's `encode_batch`.

        Raises:
            TicketError: If there is a ticket in a text.
        """
        self._check(input)
        return self._backend.encode_batch(input, *args, **kwargs)

    def _check(self, texts: Sequence) -> None:
        for row, text in enumerate(texts):
            if isinstance(text, str) and self._marks.inside(text):
                raise TicketError(
                    f"Row {row}: a text with an image goes to the tokenizer's backend, which knows no "
                    "tickets. Expected a trainer that calls the tokenizer; docs/trainers.md says which do."
                )
