"""Every reward with what it reads, for the tests that all of them must pass."""

from dataclasses import dataclass
from typing import Any

from hf_vlm_rl import rewards
from hf_vlm_rl.families import BoxFormat
from hf_vlm_rl.families.box_coordinates import BoxCoordinates, SmartResize

RESIZED = BoxCoordinates(BoxFormat(None), SmartResize(28, 56 * 56, 1280 * 28 * 28))
LOC = BoxCoordinates(BoxFormat(1023, "loc"))
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


@dataclass(frozen=True)
class Case:
    """A reward, one row of its columns, a right completion, a malformed one and its score, and the range."""

    reward: Any
    columns: dict[str, Any]
    right: str
    malformed: str = ""
    score: float = 0.0
    low: float = 0.0
    high: float = 1.0

    def __call__(self, completions: list, **columns: Any) -> list:
        """The rewards of completions of this row."""
        rows = {name: [value] * len(completions) for name, value in self.columns.items()}
        return self.reward(completions=completions, **rows | columns)


SIZE = {"image_size": (640, 480)}
BOX = {"box": [10, 20, 300, 200]}
BOXES = {"boxes": [[10, 20, 300, 200], [0, 0, 640, 480]]}
exact = rewards.exact_match_reward

CASES = [
    Case(exact, {"answer": "a cat"}, "<answer> a cat </answer>"),
    Case(rewards.normalized_match_reward, {"answer": ["Café", "cat"]}, "The cafe!"),
    Case(
        rewards.ChoiceReward(["Coca-Cola", "Nestlé"], {"Coca-Cola": ["Coke"]}),
        {"answer": "coke"},
        "coca cola",
    ),
    Case(rewards.yes_no_reward, {"answer": True}, "Yes, it is.", "Maybe"),
    Case(rewards.multiple_choice_reward, {"answer": "B"}, "(B)", "so what"),
    Case(
        rewards.MultipleChoiceReward(options="options"),
        {"answer": "B", "options": ["red", "dark blue"]},
        "Dark blue.",
        "green",
    ),
    Case(rewards.numeric_reward, {"answer": "12.5 km"}, "it is 12.5 km", "many"),
    Case(rewards.CountReward(partial=True), {"answer": 3}, "three", "many"),
    Case(rewards.math_reward, {"answer": "\\frac{1}{3}"}, "\\boxed{2/6}", "so"),
    Case(rewards.ocr_reward, {"answer": ["STOP"]}, "STOP"),
    Case(rewards.JSONSchemaReward(SCHEMA, parsed=0.2), {}, '```json\n{"n": 3}\n```', "{'n': 3}"),
    Case(rewards.format_reward, {}, "<think>a</think>\n<answer>b</answer>", "<answer>b</answer>"),
    Case(
        rewards.FormatReward(("think", "answer"), partial=True),
        {},
        "<think>a</think><answer>b</answer>",
        "<answer>b</answer>",
        0.25,
    ),
    Case(rewards.LengthReward(1, 4, margin=4), {"completion_ids": [1, 2]}, "two"),
    Case(
        rewards.CosineLengthReward(exact, 10),
        {"answer": "a", "completion_ids": []},
        "a",
        score=-1.0,
        low=-1.0,
    ),
    Case(rewards.repetition_reward, {}, "no word twice", low=-1.0, high=0.0),
    Case(rewards.RepetitionReward(n=1, unit="tokens"), {"completion_ids": [1, 2]}, "", low=-1.0, high=0.0),
    Case(rewards.iou_reward, BOX, "[10, 20, 300, 200]", "no box"),
    Case(
        rewards.IoUReward(coordinates=BoxCoordinates.relative(1)),
        BOX | SIZE,
        "[0.015625,0.0416667,.46875,0.416667]",
    ),
    Case(
        rewards.IoUReward(coordinates=RESIZED, threshold=0.9), BOX | SIZE, '{"bbox_2d": [10, 20, 302, 198]}'
    ),
    Case(
        rewards.IoUReward(coordinates=LOC, threshold=0.9),
        BOX | SIZE,
        "<loc0043><loc0016><loc0427><loc0480> cat",
    ),
    Case(rewards.detection_reward, BOXES, "[[0, 0, 640, 480], [10, 20, 300, 200]]", "none at all"),
    Case(
        rewards.DetectionReward(labels="labels", missing=0.5, extra=0.0),
        BOXES | {"labels": ["cat", "dog"]},
        '[{"bbox_2d": [0,0,640,480], "label": "Dog"}, {"label": "cat", "bbox_2d": [10, 20, 300, 200]}]',
    ),
    Case(
        rewards.compose(exact, rewards.format_reward, weights=[1.0, 0.5]),
        {"answer": "b"},
        "<think>a</think><answer>b</answer>",
        high=1.5,
    ),
    Case(
        rewards.compose(exact, gate=rewards.format_reward, closed=-1.0),
        {"answer": "b"},
        "<think>a</think><answer>b</answer>",
        score=-1.0,
        low=-1.0,
    ),
]
