"""What a load left out, and why."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ...errors import DataError

logger = logging.getLogger(__name__)

OnError = Literal["raise", "skip"] | Callable[[DataError], None]
KEPT = 5  # reasons


@dataclass
class LoadReport:
    """How many rows were read and how many were left out.

    Pass an empty one as `report=` to a loader, which fills it; also when the rows come from the cache.

    Attributes:
        rows: In the dataset.
        skipped: Left out, with `on_error="skip"` or a callable.
        reasons: The messages of the first five.
    """

    rows: int = 0
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)

    def skip(self, error: DataError, on_error: OnError) -> None:
        """Count a row that is left out; with a callable, which then gets the error.

        Raises:
            DataError: The error itself, if `on_error` is "raise".
        """
        if on_error == "raise":
            raise error from None
        self.skipped += 1
        if len(self.reasons) < KEPT:
            self.reasons.append(str(error))
        if callable(on_error):
            on_error(error)

    def need_rows(self) -> None:
        """Refuse a dataset of which no row is left.

        Raises:
            DataError: If there is none; says why they were left out.
        """
        if not self.rows:
            reasons = "".join(f"\n  {reason}" for reason in self.reasons)
            raise DataError(f"No row is left: all {self.skipped} were skipped.{reasons}")

    def fill(self, other: "LoadReport | None") -> None:
        """Write into `other`, and log a warning if rows were left out."""
        if other is not None:
            other.rows, other.skipped, other.reasons = self.rows, self.skipped, list(self.reasons)
        if self.skipped:
            shown = "".join(f"\n  {reason}" for reason in self.reasons)
            more = (
                f"\n  and {self.skipped - len(self.reasons)} more" if self.skipped > len(self.reasons) else ""
            )
            logger.warning(
                "%d of %d rows were skipped:%s%s", self.skipped, self.rows + self.skipped, shown, more
            )


def check_on_error(on_error: OnError) -> None:
    """Refuse anything but the three.

    Raises:
        ValueError: If it is none of them.
    """
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise ValueError(f'Got on_error={on_error!r}. Expected "raise", "skip" or a callable.')
