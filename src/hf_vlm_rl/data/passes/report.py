"""What a load left out, and why."""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
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

    def skip(self, error: DataError) -> None:
        """Count a row that is left out."""
        self.skipped += 1
        if len(self.reasons) < KEPT:
            self.reasons.append(str(error))

    def to_json(self) -> str:
        """A line that `from_json` reads."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "LoadReport":
        """What `to_json` wrote."""
        return cls(**json.loads(text))

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
