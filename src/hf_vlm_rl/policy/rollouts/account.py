"""What `generate` saved, for the report."""

from collections import Counter


class RolloutAccount:
    """One per policy backbone.

    Attributes:
        steps: Rows times steps of decoding, in the `generate` calls that finished rows may leave.
        steps_run: Of these, how many the model ran.
        kept: Reason to number of `generate` calls in which all rows stayed until the last was finished.
    """

    def __init__(self):
        self.steps = 0
        self.steps_run = 0
        self.kept: Counter[str] = Counter()
