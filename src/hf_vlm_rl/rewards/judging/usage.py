"""What a judge has sent and got, and why rows have no verdict."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


class NoVerdictError(Exception):
    """A question that has no verdict.

    Args:
        reason: In one or two words, by which failures are counted.
        detail: What came.
    """

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass
class Usage:
    """Counts of one judge in this process. Copies and pickled judges begin with zeros.

    Attributes:
        requests: Sent, with those that were sent again.
        retries: Of these, sent again.
        tokens: As the server counted them, of prompts and answers; 0 where it does not say.
        verdicts: That the server gave.
        cached: Verdicts from the cache.
        failures: Questions without a verdict, by reason.
    """

    requests: int = 0
    retries: int = 0
    tokens: int = 0
    verdicts: int = 0
    cached: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    _lock: Any = field(default_factory=threading.Lock, init=False, compare=False, repr=False)

    def __reduce__(self) -> tuple:
        return Usage, ()

    def spend(self, budget: int | None, again: bool) -> None:
        """Count a request that is about to be sent.

        Raises:
            NoVerdictError: If the budget is spent.
        """
        with self._lock:
            if budget is not None and self.requests >= budget:
                raise NoVerdictError("budget", f"{budget} requests were sent")
            self.requests += 1
            self.retries += again

    def count(self, *, tokens: int = 0, verdicts: int = 0, cached: int = 0, failure: str = "") -> None:
        """Add to the counts."""
        with self._lock:
            self.tokens += tokens
            self.verdicts += verdicts
            self.cached += cached
            if failure:
                self.failures[failure] += 1
