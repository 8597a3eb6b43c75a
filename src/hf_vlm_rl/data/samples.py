"""Which rows of a file a mixture takes."""

import math
import re
from dataclasses import dataclass

import numpy as np

from ..errors import DataError

_FORM = re.compile(r"(all)|(first|end|random):([0-9]+(?:\.[0-9]+)?)(%?)")


@dataclass(frozen=True)
class Sample:
    """`all`, `first:N`, `end:N` or `random:N`; N a number of rows or a percentage, such as `10%`.

    Attributes:
        text: What was written.
        seed: For `random`: the mixture's, and the number of the entry.

    Raises:
        DataError: If it is none of these.
    """

    text: str
    seed: tuple[int, int]

    def __post_init__(self):
        found = _FORM.fullmatch(self.text.replace(" ", ""))
        if not found or (found[3] and not found[4] and "." in found[3]):
            raise DataError(
                f"sampling_strategy is {self.text!r}; expected all, first:N, end:N or random:N, N a number "
                "of rows or a percentage such as 10%"
            )
        if found[3] and (float(found[3]) == 0 or (found[4] and float(found[3]) > 100)):
            raise DataError(
                f"sampling_strategy is {self.text!r}; expected at least one row, and 100% at most"
            )

    def __call__(self, total: int) -> np.ndarray:
        """Of `total` rows: which are taken, as booleans in their order.

        A percentage is rounded up.

        Raises:
            DataError: If there are not so many.
        """
        found = _FORM.fullmatch(self.text.replace(" ", ""))
        if found[1]:
            return np.ones(total, dtype=bool)
        number = math.ceil(float(found[3]) * total / 100) if found[4] else int(found[3])
        if number > total:
            raise DataError(f"sampling_strategy is {self.text!r}, but there are {total} rows; expected all")
        taken = np.zeros(total, dtype=bool)
        match found[2]:
            case "first":
                taken[:number] = True
            case "end":
                taken[total - number :] = True
            case "random":
                taken[np.random.default_rng(self.seed).choice(total, number, replace=False)] = True
        return taken
