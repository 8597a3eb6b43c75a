"""Reward functions for visual tasks: what `reward_funcs=` of TRL's trainers takes.

Names in lower case are ready to use; classes take parameters and give the same kind of function. None of
them raises on any completion; all of them raise `ColumnError` if the dataset lacks what they read.
docs/rewards.md has the table.
"""

from .answers import (
    ExactMatchReward,
    NormalizedMatchReward,
    OCRReward,
    exact_match_reward,
    normalized_match_reward,
    ocr_reward,
)
from .base import AnswerReward, Reward, RowReward
from .box_reward import BoxReward
from .choice import (
    ChoiceReward,
    MultipleChoiceReward,
    YesNoReward,
    multiple_choice_reward,
    yes_no_reward,
)
from .columns import as_number
from .completions import extract_answer, extract_tag, text_of
from .compose import ComposedReward, compose
from .detection import DetectionReward, detection_reward
from .diagnosis.batch import Diagnosis, diagnose
from .diagnosis.run import RunDiagnosis, diagnose_history
from .format import FormatReward, format_reward
from .groups import GroupAccuracyReward
from .iou import IoUReward, box_iou, iou_reward
from .json_schema import JSONSchemaReward
from .length import CosineLengthReward, LengthReward
from .maths import MathReward, math_reward
from .numeric import CountReward, NumericReward, count_reward, numeric_reward
from .reasoning import AnswerAndReasoningReward
from .repetition import RepetitionReward, repetition_reward
from .written_boxes import WrittenBox, parse_boxes

__all__ = [
    "AnswerAndReasoningReward",
    "AnswerReward",
    "BoxReward",
    "ChoiceReward",
    "ComposedReward",
    "CosineLengthReward",
    "CountReward",
    "DetectionReward",
    "Diagnosis",
    "ExactMatchReward",
    "FormatReward",
    "GroupAccuracyReward",
    "IoUReward",
    "JSONSchemaReward",
    "LengthReward",
    "MathReward",
    "MultipleChoiceReward",
    "NormalizedMatchReward",
    "NumericReward",
    "OCRReward",
    "RepetitionReward",
    "Reward",
    "RowReward",
    "RunDiagnosis",
    "WrittenBox",
    "YesNoReward",
    "as_number",
    "box_iou",
    "compose",
    "count_reward",
    "detection_reward",
    "diagnose",
    "diagnose_history",
    "exact_match_reward",
    "extract_answer",
    "extract_tag",
    "format_reward",
    "iou_reward",
    "math_reward",
    "multiple_choice_reward",
    "normalized_match_reward",
    "numeric_reward",
    "ocr_reward",
    "parse_boxes",
    "repetition_reward",
    "text_of",
    "yes_no_reward",
]
