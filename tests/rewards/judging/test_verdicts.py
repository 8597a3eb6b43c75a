"""A server that lies: what is no verdict is no score."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hf_vlm_rl.rewards.judging.usage import NoVerdictError
from hf_vlm_rl.rewards.judging.verdicts import read_verdict, schema
from tests.rewards.judging.stand_in import content

GOOD = '{"reason": "so", "score": 10}'


def score(text):
    return read_verdict(text, "score", range(11))


@pytest.mark.parametrize(
    "text", [GOOD, f"\n {GOOD}\n", f"```json\n{GOOD}\n```\n", '{"score": 10, "reason": ""}']
)
def test_a_verdict_is_read(text):
    assert score(text) == 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("10", "other keys"),
        ("null", "other keys"),
        (f"[{GOOD}]", "other keys"),
        (f"My verdict: {GOOD}", "not JSON"),
        (f"{GOOD} is my verdict", "not JSON"),
        (f"{GOOD}{GOOD}", "not JSON"),
        (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", "not JSON"),
        (f"So:\n```json\n{GOOD}\n```", "not JSON"),
        (f"<think>10</think>{GOOD}", "not JSON"),
        ('{"reason": "so", "score": 1, "score": 10}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"reason": "so", "score": NaN}', "another type"),
        ('{"score": 10}', "other keys"),
        ('{"reason": "so", "score": 10, "sure": true}', "other keys"),
        ('{"reason": "so", "Score": 10}', "other keys"),
        ('{"reason": 3, "score": 10}', "another type"),
        ('{"reason": "so", "score": "10"}', "another type"),
        ('{"reason": "so", "score": 10.0}', "another type"),
        ('{"reason": "so", "score": true}', "another type"),
        ('{"reason": "so", "score": null}', "another type"),
        ('{"reason": "so", "score": [10]}', "another type"),
        ('{"reason": "so", "score": 11}', "out of range"),
        ('{"reason": "so", "score": -1}', "out of range"),
        ('{"reason": "so", "score": 1' + "0" * 400 + "}", "out of range"),
    ],
)
def test_anything_else_is_a_failure_and_no_score(text, reason, judging):
    with pytest.raises(NoVerdictError) as error:
        score(text)
    assert error.value.reason == reason
    judge, judging.server.acts = judging.score(failed="row", concurrency=1), [content(text)]
    assert judge(["a", "b"], **judging.rows("cat", "coffee")) == [None, 0.5]
    assert judge.usage.failures == {reason: 1}
    assert judge.usage.requests == 2  # a lie is not asked again


@given(st.text())
def test_no_text_raises_anything_else(text):
    for answer in (text, json.dumps({"reason": text, "score": text})):
        with pytest.raises(NoVerdictError):
            score(answer)


def test_the_schema_admits_what_the_reader_takes():
    validator = Draft202012Validator(schema("score", range(11)))
    assert [validator.is_valid({"reason": "", "score": value}) for value in (0, 10, 11, -1, "5")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert not validator.is_valid({"score": 3})
    assert Draft202012Validator(schema("better", ("A", "B"))).is_valid({"reason": "", "better": "B"})
