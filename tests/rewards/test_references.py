"""Rewards and what independent libraries say, over recorded cases (record_references.py)."""

import itertools
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from hf_vlm_rl.rewards import (
    JSONSchemaReward,
    NumericReward,
    box_iou,
    count_reward,
    iou_reward,
    math_reward,
    normalized_match_reward,
    numeric_reward,
    ocr_reward,
)
from hf_vlm_rl.rewards.completions import words
from hf_vlm_rl.rewards.written_numbers import read_numbers

LINES = Path(__file__).with_name("references.jsonl").read_text(encoding="utf-8").splitlines()
RECORDS = [json.loads(line) for line in LINES]
DECIMAL_COMMA = frozenset("de fr es it pt nl sv ru pl tr vi id el".split())  # noqa: SIM905


def of(what):
    records = [record for record in RECORDS if record["what"] == what]
    assert records
    return pytest.mark.parametrize("record", records, ids=lambda record: record.get("language", what))


def cases_of(what):
    (record,) = (record for record in RECORDS if record["what"] == what)
    return record["cases"]


def is_close(value, expected):
    return value == pytest.approx(expected, rel=1e-12, abs=1e-12)


@of("numbers")
def test_a_number_in_the_form_of_a_language_is_itself_or_malformed(record):
    reward = NumericReward(decimal_comma=record["language"] in DECIMAL_COMMA)
    cases = [(text, value, reward.parse(text)) for text, value in record["cases"]]
    # "5 Mio." keeps its unit, and equals no plain number.
    read = [case for case in cases if case[2] is not None and not case[2].scales]
    assert [case for case in read if not is_close(case[2].value, case[1])] == []
    plain = [text for text, _, number in cases if number is None and not any(map(str.isalpha, text))]
    assert plain == []
    assert len(read) >= 200 - 5
    for text, value, number in cases:
        assert reward([text], answer=[value]) == [float(number is not None and not number.scales)]


@of("words")
def test_a_count_in_words_is_itself_or_malformed(record):
    read = {text: count_reward.parse(text) for text, _ in record["cases"]}
    assert [(text, read[text]) for text, value in record["cases"] if read[text] not in (None, value)] == []
    if record["language"] == "en":
        assert [text for text, count in read.items() if count is None] == []


def test_formulas_of_numbers_are_themselves_or_malformed():
    read = [(text, value, read_numbers(text)[-1:]) for text, value in cases_of("formulas")]
    percent = [(text, value * 100 if "%" in text else value, *found) for text, value, found in read if found]
    assert [case for case in percent if case[2] and not is_close(case[2].value, case[1])] == []
    assert sum(bool(case[2]) for case in percent) / len(percent) >= 0.5


def test_quantities_in_sentences_have_the_value_that_quantulum_reads():
    numbers = [(text, value, numeric_reward.parse(text)) for text, value, _ in cases_of("quantities")]
    assert [case for case in numbers if case[2] is None or not is_close(case[2].value, case[1])] == []


@of("names")
def test_different_names_are_different_words(record):
    names = record["cases"]
    assert len({tuple(words(name)) for name in names}) == len(set(names))
    for name, other in itertools.pairwise(names):
        decomposed = unicodedata.normalize("NFD", name)
        assert normalized_match_reward([decomposed, other], answer=[name, name]) == [1.0, 0.0]


@of("edits")
def test_ocr_counts_the_edits_that_jiwer_counts(record):
    said, right, _ = zip(*record["cases"], strict=True)
    expected = [
        1 - count / max(len(" ".join(a.split())), len(" ".join(b.split()))) for a, b, count in record["cases"]
    ]
    assert ocr_reward(list(said), answer=list(right)) == pytest.approx(expected, abs=1e-12)


def test_iou_is_that_of_coco():
    cases = cases_of("IoU")
    for a, b, iou in cases:
        assert box_iou([a], [b])[0, 0] == pytest.approx(iou, abs=1e-12)
        assert iou_reward([str(b)], box=[a]) == pytest.approx([iou], abs=1e-12)
    assert np.mean([iou > 0 for _, _, iou in cases]) > 0.5


def test_json_fits_a_schema_as_fastjsonschema_says():
    for schema, text, fits in cases_of("JSON"):
        assert JSONSchemaReward(schema)([text]) == [float(fits)], (schema, text)


def test_formulas_are_equal_as_math_verify_says():
    right, said, _ = zip(*cases_of("equalities"), strict=True)
    rewards = math_reward([f"\\boxed{{{text}}}" for text in said], answer=list(right))
    others = [case for case, reward in zip(cases_of("equalities"), rewards, strict=True) if reward != case[2]]
    assert others == []
