"""Evaluation before, during and after training: rewards on held-out rows, with intervals and pictures."""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

# Loaded on first use: the command line asks this package for its arguments.
if TYPE_CHECKING:
    from .before_training import Headroom as Headroom
    from .before_training import headroom as headroom
    from .callback import EvaluationCallback as EvaluationCallback
    from .comparison import Comparison as Comparison
    from .comparison import RewardChange as RewardChange
    from .comparison import compare as compare
    from .estimates import Estimate as Estimate
    from .kept_rows import EvaluatedRow as EvaluatedRow
    from .live_diagnosis import DiagnosisCallback as DiagnosisCallback
    from .lmms_results import from_lmms as from_lmms
    from .result import EvaluationResult as EvaluationResult
    from .result import RewardScores as RewardScores
    from .run import evaluate as evaluate
else:
    __getattr__, __dir__, __all__ = loaded_on_use(__name__)
