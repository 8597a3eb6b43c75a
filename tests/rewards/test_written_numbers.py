"""The grammar of numbers: what is in it is read as what it says, and nothing else is read."""

import math
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hf_vlm_rl.rewards import CountReward, NumericReward, count_reward, numeric_reward
from hf_vlm_rl.rewards.written_numbers import read_numbers

READ = {
    "0": 0, "7": 7, "1000000": 1e6, "1,000,000": 1e6, "1'000": 1000, "1 000": 1000, "1\u202f000": 1000,
    "1_000": 1000, "1,234.5": 1234.5, "0.5": 0.5, ".5": 0.5, "5.": 5, "5,": 5, "5...": 5, "-5": -5, "+5": 5,
    "\u22125": -5, "\u20135": -5, "minus 5": -5, "negative .5": -0.5, "x=-5": -5, "(-5)": -5, "$-5$": -5,
    "\\boxed{-5}": -5, "-$3.50": -3.5, "2½": 2.5, "½": 0.5, "-½": -0.5, "2 1/2": 2.5, "1/2": 0.5,
    "1 / 2": 0.5, "\\frac{1}{2}": 0.5, "2\\dfrac{1}{2}": 2.5, "10⁻³": 0.001, "10^{-3}": 0.001, "10^3": 1000,
    "1e-3": 0.001, "1.5E3": 1500, "1.5 x 10^3": 1500, "2\u00d710⁵": 2e5, "1.5\\times10^{-3}": 0.0015,
    "1{,}000": 1000, "5\\,000": 5000, "3.5 million": 3.5e6, "$5 million": 5e6, "2 dozen": 24, "**5**": 5,
    "*5* km": 5, "`5`": 5, "<b>5</b>": 5, "\\(5\\)": 5, "'5'": 5, "5\\%": 5, "5 percent": 5, "5^\\circ": 5,
    "-5°C": -5, "\uff15": 5, "٣\u066b\u0665": 3.5, "۱۲٬۳۴۵": 12345, "१२३": 123, "\u200f-5": -5, "共5只": 5,
    "5개": 5, "5m²": 5, "5 km/h": 5, "12,34,567": 1234567, "%5": 5, "≈5": 5,
}  # fmt: skip
MALFORMED = [
    "5²", "5^2", "5!", "5-3", "3\u20135", "5+3", "5 - 3", "2*3", "5/", "5+", "±5", "--5", "- 5", "<5",
    "≥ 5", "3~5", "-(5)", "10^(-3)", "3,14", "1,5", "1,2,3", "1,000,00", "1 00", "1, 000",
    "007", "1.2.3", "12:30", "2024-05-06", "1/0", "24/7/365", "3 4", "...5", "x5", "B-2", "No.5", "#5",
    "H2O", "2nd", "5th", "5cats", "f(5)", "sqrt(5)", "\\sqrt{5}", "\\sqrt5", "\\frac12", "2½5", "5①", "5Ⅳ",
    "三5", "5万", "5만", "第5", "负5", "5点5", "3分之1", "5(3)", "1e999", "1234567890123456", "2 3/2",
    "1.+5", "1.-5", "- (5)", "-( 5)", "-((5))", "2/ (5)", "1.**-5", "f( 5)",
    "3 or 4",
    "3 to 5", "2 point 5", "5 ft 3 in", "1 million 200 thousand", "root of 5", "half of 6", "twice 5",
    "more than 5", "at least 5", "5 squared", "5 and a half", "5 out of 6", "5 divided by 2",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), READ.items())
def test_what_the_grammar_has_is_read(text, value):
    (number,) = read_numbers(text)
    assert number.value == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("text", MALFORMED)
def test_what_it_lacks_is_malformed(text):
    assert read_numbers(text)[-1] is None
    assert numeric_reward.parse(text) is None
    assert count_reward.parse(text) is None


@pytest.mark.parametrize(
    ("said", "right", "score"),
    [
        ("5 mW", "5 MW", 0),
        ("5 KM", "5 km", 1),
        ("12 km/h", "12 km", 0),
        ("5 m²", "5 m2", 1),
        ("5 m²", "5 m", 0),
        ("5", "5k", 0),
        ("5k", "5k", 1),
        ("5k", 5, 0),
        ("5 Mio.", 5, 0),
        ("2π", 2, 0),
        ("€5", "$5", 0),
        ("5 dollars", "$5", 1),
        ("5", "$5", 1),
        ("5,000,000", "5 million", 1),
    ],
)
def test_units_that_differ_are_wrong_and_those_that_change_the_value_are_not_left_out(said, right, score):
    assert numeric_reward([said], answer=[right]) == [score]


def test_a_denied_number_is_malformed_and_one_in_a_later_sentence_is_read():
    said = [
        "not 5",
        "5 is wrong",
        "5? No.",
        "isn't 5",
        "5 nicht",
        "不是5",
        "not 3. It is 5.",
        "not 3! It is 5",
    ]
    assert numeric_reward(said, answer=[5] * len(said)) == [0, 0, 0, 0, 0, 0, 1, 1]


def test_commas_are_decimal_where_the_reward_is_told_so():
    german = NumericReward(decimal_comma=True)
    assert german(["3,14", "1.234,5 km", "1.234", "3.14"], answer=["3,14", "1.234,5 km", 1234, 3.14]) == [
        1,
        1,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("Twenty-one.", 21),
        ("twenty one", 21),
        ("one hundred and five", 105),
        ("nine hundred ninety-nine", 999),
        ("3 (three)", 3),
        ("There are none.", 0),
        ("two cats, one dog", 1),
        ("Image 1 shows three cats", None),
        ("two thousand", None),
        ("two and a half", None),
        ("three or four", None),
        ("minus three", None),
        ("twenty-first", None),
        ("a dozen", None),
        ("sixty six six", None),
        ("None of the 5", None),
        ("not none", None),
        ("50%", None),
        ("5k", None),
        ("2.5", None),
    ],
)
def test_counts_in_words(said, count):
    assert count_reward.parse(said) == count


NUMBERS = st.one_of(
    st.integers(-(10**15) + 1, 10**15 - 1),
    st.decimals(-(10**9), 10**9, places=4).map(float),
    st.floats(1e-200, 1e15, exclude_max=True),
    st.floats(1e16, 1e200),
)
FORMS = [
    "{}",
    "{} km",
    "It is {}.",
    "\\boxed{{{}}}",
    "${}$",
    "**{}**",
    "<answer>{}</answer>",
    "7, then {}",
    "x = {}",
]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(number=NUMBERS, form=st.sampled_from(FORMS), grouped=st.booleans())
def test_python_writes_what_is_read(number, form, grouped):
    written = f"{number:,}" if grouped and "e" not in repr(number) else repr(number)
    assert numeric_reward([form.format(written)], answer=[number]) == [1.0]
    assert numeric_reward([form.format(written)], answer=[number * 1.001 + 1]) == [0.0]


PIECES = [
    *"0123456789",
    *".,'_ -+/*^!%$€½²⁻\u00d7eExk",
    "\\frac{1}{2}",
    "{",
    "}",
    "(",
    ")",
    " or ",
    " minus ",
    " km",
    "\\",
    "π",
    "\uff15",
    "万",
]


@pytest.mark.slow
@settings(max_examples=2_000, deadline=None, derandomize=True)
@given(texts=st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join))
def test_what_is_read_of_any_text_is_finite_and_counts_are_whole(texts):
    for decimal_comma in (False, True):
        assert all(math.isfinite(number.value) for number in read_numbers(texts, decimal_comma) if number)
    count = CountReward().parse(texts)
    assert count is None or (isinstance(count, int) and count >= 0)


@settings(max_examples=1_000, deadline=None, derandomize=True)
@given(
    text=st.lists(st.sampled_from([*"0123456789", *"+-*/.( )", "**"]), min_size=1, max_size=6).map("".join)
)
def test_an_expression_that_python_computes_is_its_value_or_malformed(text):
    assume(text.count("**") < 2)  # Python would compute 9**2**80
    assume(not re.search(r"[.)] +[-+]", text))  # "1. -5" and "(1) -5" are an answer behind its number
    try:
        value = eval(text, {"__builtins__": {}})
    except (SyntaxError, TypeError, ZeroDivisionError, OverflowError):
        return
    if isinstance(value, int | float) and abs(value) < 1e15:
        number = numeric_reward.parse(text)
        assert number is None or number.value == pytest.approx(value, rel=1e-12)
