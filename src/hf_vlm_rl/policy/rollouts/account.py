"""What `generate` saved, for the report."""

from collections import Counter
from typing import Self


class RolloutAccount:
    """One per policy backbone.

    Attributes:
        steps: Rows times steps of decoding, in the `generate` calls that finished rows may leave.
        steps_run: Of these, how many the model ran.
        kept: Reason to number of `generate` calls in which all rows stayed until the last was finished.
        prefill_refusals: A check of prefilled prompts, with the dtype, device and kernel of the decoder, to
            what it has against them, or None.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.steps_run = 0
        self.kept: Counter[str] = Counter()
        self.prefill_refusals: dict[tuple, str | None] = {}

    def __deepcopy__(self, memo: dict) -> Self:
        return type(self)()
