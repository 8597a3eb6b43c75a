"""What no completion does, whatever it says: earn for two answers, for a denied one, or for a wrong one."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_vlm_rl import rewards
from hf_vlm_rl.rewards.completions import words

drawn = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
LETTERS = list("ABCD")
BRANDS = ["Gap", "Nike", "H&M", "Coca-Cola", "Coca-Cola Zero", "No Frills", "ガラス", "カラス", "कि", "की"]
NUMBERS = list(range(-3, 12))
# A reward, all answers that it may be asked for, and the forms in which an answer earns in full.
KINDS = {
    "letters": (
        rewards.multiple_choice_reward,
        LETTERS,
        ["{}", "({})", "{}.", "**{}**", "The answer is {}.", "选{}"],
    ),
    "brands": (rewards.ChoiceReward(BRANDS), BRANDS, ["{}", "It is {}!", "'{}'", "the brand {}."]),
    "yes or no": (
        rewards.yes_no_reward,
        ["yes", "no"],
        ["{}", "{}.", "**{}**", "{}, it is red", "The answer is {}."],
    ),
    "numbers": (
        rewards.numeric_reward,
        NUMBERS,
        ["{}", "${}$", "\\boxed{{{}}}", "It is {} km.", "({})", "7, then {}"],
    ),
    "counts": (
        rewards.count_reward,
        NUMBERS[3:],
        ["{}", "There are {} cats.", "**{}**", "first 2, then {}"],
    ),
    "normalized": (rewards.normalized_match_reward, [*BRANDS, *NUMBERS], ["{}", "The {}.", "«{}»", " {}!"]),
    "exact": (rewards.exact_match_reward, [*BRANDS, *NUMBERS], ["{}", " {} ", "<answer>{}</answer>"]),
}
kinds = pytest.mark.parametrize("kind", KINDS)
PIECES = r"""A B C D (A) **B** \boxed{C} a b option answer is not isn't no yes No, yes. true false wrong
neither or and but Gap Nike H&M Coca-Cola Zero Coke ガラス カラス कि की 不 选 是 不是 it's 1 2 3 10 -1 - 1/2
½ ² ⁻ 1,000 1,5 .5 % km k three twenty one none <answer> </answer> </think>
. , ; ! ? : $ ( ) the There are It"""
TEXTS = st.lists(st.sampled_from([*PIECES.split(), " ", " ", "\n"]), max_size=12).map("".join)


def earned(reward, text, answers):
    return reward([text] * len(answers), answer=answers)


@kinds
@drawn
@given(data=st.data())
def test_a_right_answer_in_a_stated_form_earns_in_full_and_a_wrong_one_nothing(kind, data):
    reward, answers, forms = KINDS[kind]
    said = data.draw(st.sampled_from(answers))
    text = data.draw(st.sampled_from(forms)).format(said)
    assert earned(reward, text, answers) == [float(answer == said) for answer in answers]


@kinds
@drawn
@given(text=TEXTS)
def test_no_completion_earns_for_two_answers(kind, text):
    reward, answers, _ = KINDS[kind]
    assert sum(earned(reward, text, answers)) <= 1


DENIALS = [
    "not {}",
    "It is not {}.",
    "{}, not really",
    "{} is wrong",
    "{}? No!",
    "It isn't {}",
    "不是{}",
    "nicht {}",
    "never {}",
]


@pytest.mark.parametrize("kind", ["letters", "brands", "numbers", "counts", "exact", "normalized"])
@drawn
@given(data=st.data())
def test_a_denied_answer_earns_nothing(kind, data):
    reward, answers, _ = KINDS[kind]
    said = data.draw(st.sampled_from([answer for answer in answers if answer != "No Frills"]))
    assert earned(reward, data.draw(st.sampled_from(DENIALS)).format(said), answers) == [0.0] * len(answers)


MATHS = ["5", "-5", "1/2", "x+1", "\\sqrt{2}", "6"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    said=st.sampled_from(MATHS),
    form=st.sampled_from(
        ["not ${}$", "${}$ is wrong", "${}$, not $7$", "It isn't ${}$.", "${}$ or $7$", "$7$ and ${}$"]
    ),
)
def test_mathematics_that_is_denied_or_one_of_two_earns_nothing(said, form):
    assert earned(rewards.math_reward, form.format(said), MATHS) == [0.0] * len(MATHS)


NUMBER = st.one_of(st.integers(-9, 700), st.floats(-9, 700).map(lambda number: round(number, 2)))


@drawn
@given(box=st.lists(NUMBER, min_size=4, max_size=4), other=st.lists(NUMBER, min_size=4, max_size=4))
def test_boxes_earn_between_nothing_and_one_and_two_different_ones_nothing(box, other):
    right = [[10, 20, 300, 200]]
    (one,) = rewards.iou_reward([str(box)], box=right)
    (detected,) = rewards.detection_reward([str([box, other])], boxes=[right])
    assert 0 <= one <= 1
    assert 0 <= detected <= 1
    assert (one == 1) == (box == right[0])
    assert box == other or rewards.iou_reward([str([box, other])], box=right) == [0.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ガラス", ["ガ", "ラ", "ス"]),
        ("ｶﾞﾗｽ", ["ガ", "ラ", "ス"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("กา ก่า ก้า", ["กา", "ก่า", "ก้า"]),
        ("CAFÉ Αθήνα мой", ["cafe", "αθηνα", "мой"]),
        ("$-5$ (-5) \\boxed{-5} \u22125 \u20135", ["-5", "-5", "boxed", "-5", "-5", "-5"]),
        ("5-3 x-5 7-Eleven", ["5", "3", "x", "5", "7", "eleven"]),
        (".5 -.5 1.5kg .5kg", ["0.5", "-0.5", "1.5kg", "0.5kg"]),
        ("1,5 1,000 1,2,3", ["1", "5", "1000", "1", "2", "3"]),
        ("5² 2½ \uff11\uff12", ["5²", "2½", "12"]),
    ],
)
def test_words_keep_what_makes_them_different(text, expected):
    assert words(text) == expected
