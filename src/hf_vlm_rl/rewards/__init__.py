"""Reward functions for visual tasks: what `reward_funcs=` of TRL's trainers takes.

Names in lower case are ready to use; classes take parameters and give the same kind of function. None of
them raises on any completion; all of them raise `ColumnError` if the dataset lacks what they read.
docs/rewards.md has the table. Judges ask a model on a server.
"""

from typing import TYPE_CHECKING

from .._lazy import loaded_on_use

if TYPE_CHECKING:
    from .answers import ExactMatchReward as ExactMatchReward
    from .answers import NormalizedMatchReward as NormalizedMatchReward
    from .answers import OCRReward as OCRReward
    from .answers import exact_match_reward as exact_match_reward
    from .answers import normalized_match_reward as normalized_match_reward
    from .answers import ocr_reward as ocr_reward
    from .base import AnswerReward as AnswerReward
    from .base import Reward as Reward
    from .base import RowReward as RowReward
    from .choice import ChoiceReward as ChoiceReward
    from .choice import MultipleChoiceReward as MultipleChoiceReward
    from .choice import YesNoReward as YesNoReward
    from .choice import multiple_choice_reward as multiple_choice_reward
    from .choice import yes_no_reward as yes_no_reward
    from .columns import as_number as as_number
    from .completions import extract_answer as extract_answer
    from .completions import extract_tag as extract_tag
    from .completions import text_of as text_of
    from .composed import ComposedReward as ComposedReward
    from .composed import compose as compose
    from .detection import DetectionReward as DetectionReward
    from .detection import detection_reward as detection_reward
    from .diagnosis.batch import Diagnosis as Diagnosis
    from .diagnosis.batch import diagnose as diagnose
    from .format import FormatReward as FormatReward
    from .format import format_reward as format_reward
    from .iou import BoxReward as BoxReward
    from .iou import IoUReward as IoUReward
    from .iou import box_iou as box_iou
    from .iou import iou_reward as iou_reward
    from .json_schema import JSONSchemaReward as JSONSchemaReward
    from .judging.judge import ImageJudge as ImageJudge
    from .judging.pairwise import PairJudge as PairJudge
    from .judging.pointwise import ScoreJudge as ScoreJudge
    from .length import CosineLengthReward as CosineLengthReward
    from .length import LengthReward as LengthReward
    from .maths import MathReward as MathReward
    from .maths import math_reward as math_reward
    from .numeric import CountReward as CountReward
    from .numeric import NumericReward as NumericReward
    from .numeric import count_reward as count_reward
    from .numeric import numeric_reward as numeric_reward
    from .repetition import RepetitionReward as RepetitionReward
    from .repetition import repetition_reward as repetition_reward
    from .written_boxes import WrittenBox as WrittenBox
    from .written_boxes import parse_boxes as parse_boxes
else:
    __getattr__, __dir__, __all__ = loaded_on_use(__name__)
