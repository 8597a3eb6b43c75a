"""What a policy computed once instead of often, and every reason why it did not.

A fast path has one fallback, the stock model. Whoever finds that a fast path would not give stock's numbers
raises `Refused`; the gate of that path catches it, notes the reason here, and lets stock compute.
"""

from collections import Counter
from typing import Any, Literal, Self

from transformers.utils import logging

logger = logging.get_logger(__name__)

# What may be refused, under the name that `VLMPolicy.sharing_report` gives its reasons.
Subject = Literal["not_shared", "rows_kept"]
SAID: dict[Subject, str] = {
    "not_shared": "Rows do not share their prompts",
    "rows_kept": "Finished rows stay in the batch of `generate`",
}


class Refused(Exception):
    """A fast path must not be taken; nothing was computed, and stock computes instead.

    `lasting` is True if every later call would be refused; False if the reason lies in this call's arguments.
    """

    def __init__(self, reason: str, lasting: bool = False):
        super().__init__(reason)
        self.lasting = lasting


class Report:
    """One per policy backbone: numbers by name, and by subject the reasons why calls were refused, counted.

    A deep copy begins with empty counts.
    """

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()
        self.reasons: dict[Subject, Counter[str]] = {subject: Counter() for subject in SAID}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)()

    def count(self, **numbers: int) -> None:
        """Add to the numbers of these names."""
        self.numbers.update(numbers)

    def reach(self, name: str, number: int) -> None:
        """Keep the largest number of this name."""
        self.numbers[name] = max(self.numbers[name], number)

    def refuse(self, subject: Subject, refused: Refused) -> None:
        """Note why stock computes this call. A reason that lasts is also a warning, once."""
        reason = str(refused)
        if refused.lasting and not self.reasons[subject][reason]:
            logger.warning(f"{SAID[subject]} from here on: {reason}.")
        self.reasons[subject][reason] += 1
