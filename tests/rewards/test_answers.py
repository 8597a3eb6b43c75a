"""Answers in words, letters and numbers: what is right, what is wrong, what is malformed."""

import numpy as np
import pytest
import torch

from hf_vlm_rl import ColumnError
from hf_vlm_rl.rewards import (
    ChoiceReward,
    CountReward,
    MultipleChoiceReward,
    NumericReward,
    OCRReward,
    count_reward,
    exact_match_reward,
    extract_answer,
    extract_tag,
    multiple_choice_reward,
    normalized_match_reward,
    numeric_reward,
    ocr_reward,
    yes_no_reward,
)


def score(reward, completion, **columns):
    (value,) = reward(completions=[completion], **{name: [value] for name, value in columns.items()})
    return value


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> a </answer>", "a"),
        ("<answer>a</answer> or <answer>b</answer>", "b"),
        ("<answer>a <answer>b</answer>", "b"),
        ("<think>maybe <answer>a</answer></think> b", "a"),
        ("<think>maybe a</think> b", "b"),
        ("<answer>never closed", "<answer>never closed"),
        ("</answer> wrong way <answer>", "</answer> wrong way <answer>"),
        ("a", "a"),
        ("", ""),
    ],
)
def test_the_answer_is_in_its_last_tag_or_after_the_thoughts_or_everything(text, answer):
    assert extract_answer(text) == answer


def test_tags_are_any_names():
    assert extract_tag("<box>1</box><box>2</box>", "box") == "2"
    assert extract_tag("<Answer>1</Answer>", "answer") is None
    assert extract_answer("<think>a</think><answer>b</answer>", None) == "<think>a</think><answer>b</answer>"


@pytest.mark.parametrize(
    ("said", "answer", "exact", "normalized"),
    [
        ("cat", "cat", 1, 1),
        ("The cat.", "cat", 0, 1),
        ("CAFÉ", "cafe", 0, 1),
        ("levis", "Levi's", 0, 1),
        ("dog", ["cat", "dog"], 1, 1),
        ("3", 3, 1, 1),
        ("-3", 3, 0, 0),
        ("3.14", "314", 0, 0),
        ("1,000", "1000", 0, 1),
        ("the", "a", 0, 0),
        ("+", "-", 0, 0),
        ("", "", 0, 0),
    ],
)
def test_exact_and_normalized_matches(said, answer, exact, normalized):
    assert score(exact_match_reward, said, answer=answer) == exact
    assert score(normalized_match_reward, f"<answer>{said}</answer>", answer=answer) == normalized


def brands():
    names = [f"Brand {number}" for number in range(100)]
    special = ["Coca-Cola", "Coca-Cola Zero", "Nestlé", "H&M", "Levi's", "7-Eleven", "耐克", "Gap"]
    return ChoiceReward([*names, *special], {"Coca-Cola": ["Coke"], "耐克": ["Nike"]})


@pytest.mark.parametrize(
    ("said", "parsed"),
    [
        ("coca cola", "Coca-Cola"),
        ("It is a COKE!", "Coca-Cola"),
        ("Coca-Cola Zero", "Coca-Cola Zero"),
        ("coke, that is Coca-Cola", "Coca-Cola"),
        ("NESTLE", "Nestlé"),
        ("h & m", "H&M"),
        ("LEVI\u2019S", "Levi's"),
        ("7 Eleven", "7-Eleven"),
        ("这是耐克的鞋", "耐克"),
        ("brand 42", "Brand 42"),
        ("Brand 4 2", "Brand 4"),
        ("Brand 427", None),
        ("the gaps between", None),
        ("Gap or H&M", None),
        ("not Gap but Nike", None),
        ("", None),
    ],
)
def test_a_choice_is_the_one_name_that_is_mentioned(said, parsed):
    reward = brands()
    assert reward.parse(f"<think>Gap? Coke?</think><answer>{said}</answer>") == parsed
    assert score(reward, said, answer="Gap") == 0


def test_choices_are_checked_when_given_and_when_read():
    for choices, aliases, told in [
        (["a"], {}, "two or more"),
        (["Nestlé", "nestle"], {}, "names both"),
        (["a", "b"], {"a": ["B"]}, "names both 'b' and 'a'|names both 'a' and 'b'"),
        (["a", "b"], {"c": ["d"]}, r"aliases of \['c'\]"),
        (["a", "!!"], {}, "no letters"),
    ]:
        with pytest.raises(ValueError, match=told):
            ChoiceReward(choices, aliases)
    with pytest.raises(ColumnError, match=r"row 1 of the column 'answer' is 'Nestlee'.*mean 'Nestlé'"):
        brands()(["", ""], answer=["Coke", "Nestlee"])


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("B.", "B"),
        ("B) Paris", "B"),
        ("**B**", "B"),
        ("\\boxed{B}", "B"),
        ("The answer is B", "B"),
        ("I think A", "A"),
        ("A cat, so option C", "C"),
        ("Option C because A is cold", "C"),
        ("B: a dog", "B"),
        ("选B", "B"),
        ("答案是B", "B"),
        ("正确答案为B。", "B"),
        ("答案\uff1aB", "B"),
        ("\uff08B\uff09", "B"),
        ("B选项", "B"),
        ("不选A\uff0c选B", "B"),
        ("정답은B입니다", "B"),
        ("the answer is b", "B"),
        ("The answer is a.", "A"),
        ("the answer is b because it barks", "B"),
        ("Answer: b", "B"),
        ("option b", "B"),
        ("Option a is right", "A"),
        ("b. a cat", "B"),
        ("b) a cat", "B"),
        ("(b)", "B"),
        ("\\boxed{b}", "B"),
        ("\uff22", "B"),
        ("the answer is a cat", None),
        ("Answer: I see a cat", None),
        ("the cat(s) and dog(s)", None),
        ("a cat", None),
        ("选A或选B", None),
        ("AB", None),
        ("A or B", None),
        ("B (not A)", None),
        ("not A", None),
        ("B is wrong", None),
        ("Option C because A is wrong", None),
        ("Not A. The answer is B.", "B"),
        ("B. Not a cat", "B"),
        ("C) None of the above", "C"),
        ("(A) and (B)", None),
        ("I see a cat", None),
        ("A Nike shoe.", None),
        ("A BMW", None),
        ("I THINK SO", None),
        ("A or maybe not", None),
        ("A 图片里的猫", "A"),
        ("A\nThe image shows a cat.", "A"),
        ("the U.S.A.", None),
        ("", None),
    ],
)
def test_letters_of_multiple_choice(said, letter):
    parsed = multiple_choice_reward.parse(said)
    assert (parsed[0] if parsed else None) == letter
    assert score(multiple_choice_reward, said, answer=letter or "D") == (letter is not None)


def test_the_text_of_an_option_stands_for_its_letter():
    reward = MultipleChoiceReward(options="options")
    options = ["red", "Dark blue", "red!"]
    assert score(reward, "dark blue.", answer="B", options=options) == 1
    assert score(reward, "B", answer="B", options=options) == 1
    assert score(reward, "red", answer="A", options=options) == 0  # two options read like this
    assert score(reward, "blue", answer="B", options=options) == 0
    assert score(reward, "A Big House", answer="C", options=["cat", "dog", "A Big House"]) == 1
    for right, said in (("A", 0.0), ("B", 1.0)):
        assert score(reward, "Vitamin A", answer=right, options=["Vitamin C", "Vitamin A"]) == said
        assert score(reward, "(B) Vitamin A", answer=right, options=["Vitamin C", "Vitamin A"]) == said
    # Rows of other tasks have no options.
    both = reward(["B", "B"], answer=["B", None], options=[options, []])
    assert both == [1.0, None]


@pytest.mark.parametrize("letter", ["\u0410", "1", "", "AB"])  # the first is Cyrillic
def test_a_letter_that_nobody_can_answer_is_refused(letter):
    with pytest.raises(ColumnError, match="the letter of the right option"):
        multiple_choice_reward(["A"], answer=[letter])
    assert multiple_choice_reward(["b"], answer=["\uff22"]) == [1.0]


def test_whole_numbers_of_a_column_of_floats_are_written_as_people_do():
    assert exact_match_reward(["3", "3.0", "2.5"], answer=[3.0, 3.0, 2.5]) == [1, 1, 1]
    assert exact_match_reward(["3"], answer=[2.5]) == [0]


def test_values_of_arrays_are_those_of_lists():
    answers = [np.array(True), torch.tensor(True)]
    assert yes_no_reward(["yes", "no"], answer=answers) == [1, 0]
    assert numeric_reward(["5", "6"], answer=[torch.tensor(5), np.float32(5)]) == [1, 0]
    assert exact_match_reward(["a", "b"], answer=[np.array(["a", "c"]), np.array("a")]) == [1, 0]


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("three", 1),
        ("There are three.", 1),
        ("more than three", 0),
        ("fewer than three", 0),
        ("at least three", 0),
        ("three percent", 0),
        ("three or more", 0),
    ],
)
def test_words_that_change_a_number_in_words_make_it_malformed(said, right):
    assert count_reward([said], answer=[3]) == [right]


def test_a_name_that_denies_something_is_no_denial():
    reward = ChoiceReward(["cat", "other"], aliases={"other": ["none", "no animal"]})
    assert reward(["none", "No animal!", "other", "not other"], answer=["other"] * 4) == [1, 1, 1, 0]
    assert reward(["none", "not a cat"], answer=["cat"] * 2) == [0, 0]


@pytest.mark.parametrize(
    ("said", "parsed"),
    [
        ("Yes", True),
        ("no.", False),
        ("It is true", True),
        ("No, it is not.", False),
        ("Yes, it is", True),
        ("not true", None),
        ("It is not false", None),
        ("Yes, it isn't", None),
        ("There is no doubt", None),
        ("I have no idea", None),
        ("It has false teeth", None),
        ("yes and no", None),
        ("nobody knows", None),
        ("", None),
    ],
)
def test_yes_and_no(said, parsed):
    assert yes_no_reward.parse(said) is parsed
    assert score(yes_no_reward, said, answer="yes") == (parsed is True)


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        ("12 km", "12 km", 1),
        ("12", "12 km", 1),
        ("12 km", 12, 1),
        ("12 m", "12 km", 0),
        ("1,234.5", 1234.5, 1),
        ("1,234,567", 1234567, 1),
        ("50%", 0.5, 1),
        ("50 %", "50%", 1),
        ("0.5", "50%", 1),
        ("50", "50%", 1),
        ("50%", 5, 0),
        ("1/2", 0.5, 1),
        ("½", 0.5, 1),
        ("-$3.50", -3.5, 1),
        ("\u22122", -2, 1),
        ("x=-5", -5, 1),
        ("5-3", 3, 0),
        ("5-3", 2, 0),
        ("1e3", 1000, 1),
        (".5", 0.5, 1),
        ("first 7, then 8", 8, 1),
        ("3,14", 3.14, 0),
        ("1.2.3", 1.2, 0),
        ("5!", 5, 0),
        ("$5!$", 5, 0),
        ("not 5! but 3", 3, 1),
        ("1/0", 0, 0),
        ("1e999", 1, 0),
        ("12345678901234567890", 12345678901234567890, 0),
        ("twelve", 12, 0),
    ],
)
def test_numbers(said, answer, right):
    assert score(numeric_reward, said, answer=answer) == right


def test_tolerances_are_inclusive():
    assert score(NumericReward(rel_tol=0.05), "105", answer=100) == 1
    assert score(NumericReward(rel_tol=0.05), "105.1", answer=100) == 0
    assert score(NumericReward(abs_tol=2), "-2", answer=0) == 1


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("3", 1),
        ("There are three.", 1),
        ("4", 2 / 3),
        ("6", 0),
        ("99", 0),
        ("3.0", 1),
        ("-3", 0),
        ("2.5", 0),
        ("3!", 0),
        ("", 0),
    ],
)
def test_counts_with_and_without_partial_credit(said, value):
    assert score(CountReward(partial=True), said, answer=3) == pytest.approx(value, abs=1e-12)
    assert score(CountReward(), said, answer=3) == (value == 1)


def test_ocr_is_edit_similarity_and_takes_the_best_of_several():
    assert score(ocr_reward, "kitten", answer="sitting") == pytest.approx(1 - 3 / 7, abs=1e-12)
    assert score(ocr_reward, "kitten", answer=["sitting", "kitten"]) == 1
    assert score(ocr_reward, "a   b\nc", answer="a b c") == 1
    assert score(OCRReward(ignore_case=True), "STOP", answer="stop") == 1
    assert score(OCRReward(threshold=0.6), "kitten", answer="sitting") == 0
