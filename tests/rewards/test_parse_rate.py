"""Rewards log how many completions they could read: a form without accuracy shows while a run goes on."""

import json
import math
from collections import defaultdict

import pytest

from hf_vlm_rl.rewards import (
    ComposedReward,
    CosineLengthReward,
    FormatReward,
    NumericReward,
    RepetitionReward,
    RowReward,
    compose,
    exact_match_reward,
    format_reward,
    iou_reward,
    numeric_reward,
)
from tests.rewards.cases import CASES
from tests.trainers.distributed.launch import on_two_ranks
from tests.trainers.runs import grpo, logs, rloo, square, user

SAID = ["<answer>7</answer>", "seven?", "9", "<think>x</think><answer>7</answer>"]


def logged(reward, completions, **columns):
    """What a call logs, by name, as trainers collect it."""
    metrics = defaultdict(list)
    reward(completions=completions, log_metric=lambda name, value: metrics[name].append(value), **columns)
    return dict(metrics)


def test_the_rate_is_the_share_of_completions_that_parse():
    assert logged(numeric_reward, SAID, answer=[7] * 4) == {"numeric_reward/parse_rate": [0.75]}
    assert logged(NumericReward(name="count"), SAID[:1], answer=[1]) == {"count/parse_rate": [1.0]}
    assert logged(format_reward, SAID) == {"format_reward/parse_rate": [0.25]}
    assert logged(FormatReward(partial=True), SAID) == {"format_reward/parse_rate": [0.25]}


def test_rows_that_the_reward_is_not_for_do_not_count():
    assert logged(numeric_reward, SAID, answer=[7, None, None, None]) == {"numeric_reward/parse_rate": [1.0]}
    assert logged(numeric_reward, SAID, answer=[None, 7, None, None]) == {"numeric_reward/parse_rate": [0.0]}


def test_a_batch_without_rows_logs_nan_and_not_nothing():
    # Trainers gather each name over processes: one that left it out would make the others wait for ever.
    ((name, (value,)),) = logged(numeric_reward, SAID, answer=[None] * 4).items()
    assert name == "numeric_reward/parse_rate"
    assert math.isnan(value)


def test_a_reward_that_is_for_no_row_says_so_once_by_its_name(caplog):
    for _ in range(200):
        NumericReward(name="nobody")(completions=SAID, answer=[None] * 4)
        NumericReward(name="somebody")(completions=SAID, answer=[None] * 3 + [7])
    for answer in (7, *[None] * 200):
        NumericReward(name="rare")(completions=SAID, answer=[answer] * 4)
    (message,) = caplog.messages
    assert message.startswith("nobody returned None for each of its first 256 completions: its column is")
    assert "Name the column that has the answers (column=...), or leave the reward out" in message


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{CASES.index(case)}-{case.reward.__name__}")
def test_every_reward_that_parses_logs_it_and_scores_as_without(case):
    texts = [case.right, case.malformed]
    metrics = defaultdict(list)
    given = case(texts, log_metric=lambda name, value: metrics[name].append(value))
    assert given == case(texts)
    if isinstance(case.reward, RowReward):
        assert list(metrics) == [f"{case.reward.__name__}/parse_rate"]
    parsing = (FormatReward, ComposedReward, CosineLengthReward)
    assert bool(metrics) == isinstance(case.reward, (RowReward, *parsing))
    assert all(len(values) == 1 and 0 <= values[0] <= 1 for values in metrics.values())


def test_what_holds_other_rewards_logs_under_their_names():
    task = compose(numeric_reward, iou_reward, gate=format_reward, name="task")
    columns = {"answer": [7] * 4, "box": [[0, 0, 1, 1]] * 4}
    assert logged(task, SAID, **columns) == {
        "numeric_reward/parse_rate": [0.75],
        "iou_reward/parse_rate": [0.0],
        "format_reward/parse_rate": [0.25],
    }
    assert logged(RepetitionReward(), SAID) == {}


@pytest.mark.trl
@pytest.mark.parametrize("train", [grpo, rloo], ids=["grpo", "rloo"])
def test_trainers_log_it_while_they_train(train, policy_for, tmp_path):
    policy = policy_for("qwen2_5_vl")
    answers = ["here", None, "there"]
    rows = [
        {"prompt": user("Where?"), "image": square(name), "answer": answer, "box": None}
        for name, answer in zip(("astronaut", "coffee", "cat"), answers, strict=True)
    ]
    functions = [exact_match_reward, compose(format_reward, iou_reward, name="manners")]
    trainer = train(policy, rows, tmp_path, reward=functions, peft=policy.lora_config(r=4), max_steps=2)
    trainer.train()
    names = ("exact_match_reward/parse_rate", "format_reward/parse_rate", "iou_reward/parse_rate")
    first = logs(trainer, *names[:2])[0]
    assert 0 < first[0] <= 1  # a random model's words are answers
    assert first[1] == 0.0
    assert trainer.state.log_history[0][names[2]] is None  # no row has a box


@pytest.mark.slow
@pytest.mark.trl
def test_a_process_without_rows_of_a_reward_stops_no_other(checkpoint, tmp_path):
    on_two_ranks("tests.rewards.on_ranks", checkpoint("qwen2_5_vl"), tmp_path)
    steps = [entry for entry in json.loads((tmp_path / "log.json").read_text()) if "reward" in entry]
    assert [step["format_reward/parse_rate"] for step in steps] == [0.0, 0.0]
    first, second = (step["exact_match_reward/parse_rate"] for step in steps)
    assert first is None
    assert 0 <= second <= 1
