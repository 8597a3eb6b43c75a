"""Rows that a load leaves out, and why."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ...errors import DataError

logger = logging.getLogger(__name__)

OnError = Literal["raise", "skip"] | Callable[[DataError], None]
KEPT = 5  # reasons


@dataclass
class Skipped:
    """Counts the rows that are left out.

    Attributes:
        on_error: What happens with a bad row.
        number: Rows that were left out.
        reasons: The messages of the first five.
    """

    on_error: OnError
    number: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, error: DataError) -> None:
        """Count a row that is left out; a callable gets the error.

        Raises:
            DataError: The error itself, if `on_error` is "raise".
        """
        if self.on_error == "raise":
            raise error from None
        self.number += 1
        if len(self.reasons) < KEPT:
            self.reasons.append(str(error))
        if callable(self.on_error):
            self.on_error(error)

    def tell(self, rows: int) -> None:
        """Log a warning if rows were left out.

        Args:
            rows: How many are left.

        Raises:
            DataError: If none is left; says why they were left out.
        """
        reasons = "".join(f"\n  {reason}" for reason in self.reasons)
        if not rows:
            raise DataError(f"No row is left: all {self.number} were skipped.{reasons}")
        if self.number:
            more = self.number - len(self.reasons)
            reasons += f"\n  and {more} more" if more else ""
            logger.warning("%d of %d rows were skipped:%s", self.number, rows + self.number, reasons)


def check_on_error(on_error: OnError) -> None:
    """Refuse anything but the three.

    Raises:
        ValueError: If it is none of them.
    """
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise ValueError(f'Got on_error={on_error!r}. Expected "raise", "skip" or a callable.')
