"""What `generate` saved, for the report, and what it may save by drafts."""

from collections import Counter
from typing import Self

from .drafts import PastCompletions

# Tokens of a draft at most, where no number is given.
MOST_DRAFTS = 8


class RolloutAccount:
    """One per policy backbone.

    Args:
        speculation: Whether rows may run drafts of their next tokens, or the most tokens of a draft.

    Attributes:
        steps: Rows times steps of decoding, in the `generate` calls that finished rows may leave.
        steps_run: Of these, how many the model ran.
        kept: Reason to number of `generate` calls in which all rows stayed until the last was finished.
        completions: Earlier completions of each prompt, while drafts are asked for.
        drafts: Tokens that were drafted.
        drafts_accepted: Of these, those that were sampled then.
        forwards_saved: Steps of decoding that needed no forward.
        not_speculated: Reason to number of `generate` calls that went on token by token, though drafts are
            asked for.
        prefill_refusals: A check of prefilled prompts, with the dtype, device and kernel of the decoder, to
            what it has against them, or None.
    """

    def __init__(self, speculation: bool | int = False) -> None:
        self.speculation = speculation
        self.steps = 0
        self.steps_run = 0
        self.kept: Counter[str] = Counter()
        self.completions = PastCompletions()
        self.drafts = 0
        self.drafts_accepted = 0
        self.forwards_saved = 0
        self.not_speculated: Counter[str] = Counter()
        self.prefill_refusals: dict[tuple, str | None] = {}

    def __deepcopy__(self, memo: dict) -> Self:
        return type(self)(self.speculation)

    @property
    def speculation(self) -> bool | int:
        """Whether rows may run drafts of their next tokens, or the most tokens of a draft."""
        return self._speculation

    @speculation.setter
    def speculation(self, speculation: bool | int) -> None:
        # A bool is a number, too: False is no number of tokens.
        if not isinstance(speculation, int) or (speculation < 1 and speculation is not False):
            raise ValueError(
                f"Got speculation={speculation!r}. Expected True, False or the most tokens of a draft, "
                "at least 1."
            )
        self._speculation = speculation

    @property
    def most_drafts(self) -> int:
        """The most tokens of a draft; 0 if there are none."""
        return MOST_DRAFTS if self._speculation is True else int(self._speculation)
