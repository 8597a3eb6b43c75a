"""`DiagnosisCallback`: says while a trainer trains that its rewards teach little."""

import logging
from typing import Any

from transformers import TrainerCallback

from ..rewards.diagnosis.signs import SILENT_GROUPS, signs_of

logger = logging.getLogger(__name__)


class DiagnosisCallback(TrainerCallback):
    """Warns when a run of GRPO or RLOO teaches little, with what to do about it.

    ```python
    trainer = GRPOTrainer(..., callbacks=[DiagnosisCallback()])
    ```

    It reads what the trainer logs: groups without variance, entropy, and how many completions a reward could
    read. What is wrong in one window and was not in the window before is said once, on the main process.
    Training is as without the callback.

    Args:
        window: Log entries of newly sampled completions that are averaged, 1 or more; the first warning comes
            after so many.

    Attributes:
        found: Step to the sentences that were said there.
    """

    def __init__(self, window: int = 10):
        if window < 1:
            raise ValueError(f"Got {window=}. Expected 1 or more.")
        self.window = window
        self.found: dict[int, tuple[str, ...]] = {}
        self._known: set[str] = set()

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at the last window when it is full."""
        # Entries of evaluations, and the run's last, have other names.
        if not state.is_world_process_zero or SILENT_GROUPS not in state.log_history[-1]:
            return
        entries = [entry for entry in state.log_history if SILENT_GROUPS in entry]
        if len(entries) % self.window:
            return
        signs = signs_of(entries[-self.window :])
        new = tuple(sentence for name, sentence in signs.items() if name not in self._known)
        self._known = set(signs)
        if new:
            self.found[state.global_step] = new
        for sentence in new:
            logger.warning(
                "In the %d log entries up to step %d, %s", self.window, state.global_step, sentence
            )
