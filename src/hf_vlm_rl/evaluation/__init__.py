"""Evaluation before, during and after training: rewards on held-out rows, with intervals and pictures."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

if TYPE_CHECKING:
    from .callback import EvaluationCallback
    from .comparison import Comparison, RewardChange, compare
    from .estimates import Estimate
    from .kept_rows import EvaluatedRow
    from .result import EvaluationResult, RewardScores
    from .run import evaluate

# Loaded on first use: the command line asks this package for its arguments.
_HOME = {
    "Comparison": "comparison",
    "Estimate": "estimates",
    "EvaluatedRow": "kept_rows",
    "EvaluationCallback": "callback",
    "EvaluationResult": "result",
    "RewardChange": "comparison",
    "RewardScores": "result",
    "compare": "comparison",
    "evaluate": "run",
}

__all__ = [
    "Comparison",
    "Estimate",
    "EvaluatedRow",
    "EvaluationCallback",
    "EvaluationResult",
    "RewardChange",
    "RewardScores",
    "compare",
    "evaluate",
]


__getattr__ = loaded_on_use(__name__, _HOME)
