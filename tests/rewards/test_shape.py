"""Rewards for the shape of completions: format, length, repetition."""

import math

import pytest

from hf_vlm_rl.rewards import (
    CosineLengthReward,
    FormatReward,
    LengthReward,
    RepetitionReward,
    exact_match_reward,
    format_reward,
    repetition_reward,
)


@pytest.mark.parametrize(
    ("text", "fits", "partial"),
    [
        ("<think>a</think><answer>b</answer>", 1, 1),
        ("\n<think>\na < b\n</think>\n\n<answer>b</answer>\n", 1, 1),
        ("<think>a</think> so <answer>b</answer>", 0, 0.5),
        ("<think>a</think><answer>b</answer>.", 0, 0.5),
        ("x<think>a</think><answer>b</answer>", 0, 0.5),
        ("<answer>b</answer><think>a</think>", 0, 0.5),
        ("<think>a<answer>b</answer></think>", 0, 0.5),
        ("<think>a<answer></think>b</answer>", 0, 0.5),
        ("<think> </think><answer>b</answer>", 0, 0.5),
        ("<think>a</think><think>a</think><answer>b</answer>", 0, 0.25),
        ("<think>a</think><answer>b", 0, 0.375),
        ("<THINK>a</THINK><answer>b</answer>", 0, 0.25),
        ("b", 0, 0),
    ],
)
def test_format_is_each_tag_once_in_order_with_nothing_outside(text, fits, partial):
    assert format_reward([text]) == [fits]
    assert FormatReward(partial=True)([text]) == [partial]


def test_other_tags_and_prompts_that_open_the_first():
    assert FormatReward(["plan", "act", "answer"])(["<plan>1</plan><act>2</act><answer>3</answer>"]) == [1]
    opened = FormatReward(opened=True)
    assert opened(["a</think><answer>b</answer>", "<think>a</think><answer>b</answer>"]) == [1, 0]
    assert opened.parse("a</think><answer>b</answer>") == {"think": "a", "answer": "b"}
    for tags in ([], ["a", "a"], "answer"):
        with pytest.raises(ValueError, match="different names"):
            FormatReward(tags)


def test_length_is_full_inside_and_falls_over_the_margin():
    ids = [[0] * length for length in (0, 2, 4, 8, 10, 12, 13)]
    assert LengthReward(4, 8, margin=4)([""] * 7, completion_ids=ids) == [0, 0.5, 1, 1, 0.5, 0, 0]
    assert LengthReward(4, 8)([""] * 7, completion_ids=ids) == [0, 0, 1, 1, 0, 0, 0]
    with pytest.raises(ValueError, match="shortest=5, longest=4"):
        LengthReward(5, 4)


def test_cosine_makes_right_answers_short_and_wrong_ones_long():
    reward = CosineLengthReward(exact_match_reward, longest=8)
    ids = [[0] * length for length in (0, 4, 8, 99)]
    assert reward(["a"] * 4, answer=["a"] * 4, completion_ids=ids) == pytest.approx([1, 0.75, 0.5, 0.5])
    assert reward(["b"] * 4, answer=["a"] * 4, completion_ids=ids) == pytest.approx([-1, -0.75, -0.5, -0.5])
    (quarter,) = reward(["a"], answer=["a"], completion_ids=[[0, 0]])
    assert quarter == pytest.approx(0.5 + 0.25 * (1 + math.cos(math.pi / 4)), abs=1e-12)


def test_repetition_is_minus_the_share_of_repeated_n_grams():
    assert RepetitionReward(n=2)(["a b a b a", "one two three", "one"]) == pytest.approx([-0.5, 0, 0])
    assert repetition_reward(["no it is not. " * 50]) == pytest.approx([4 / 197 - 1])
    tokens = RepetitionReward(n=1, unit="tokens")
    assert tokens(["", ""], completion_ids=[[7, 7, 7, 7], [1, 2]]) == pytest.approx([-0.75, 0])
