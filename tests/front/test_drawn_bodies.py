"""Whatever a request says, the answer is vLLM's or a refusal in words, and no error of the front's own."""

import json

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_vlm_rl.front.requests import BESIDE, SAMPLING
from tests.front.conftest import CAT

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
RIGHT = {
    "logit_bias": st.dictionaries(st.integers(0, 20).map(str), st.floats(-5, 5), max_size=2),
    "logprobs": st.sampled_from([0, None]),
    "max_tokens": st.integers(1, 8),
    "model": st.just("tiny"),
    "n": st.integers(1, 3),
    "prompt": st.lists(st.integers(0, 20), min_size=1, max_size=4),
    "return_token_ids": st.booleans(),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
}
NAMES = sorted(SAMPLING | BESIDE | {"stream"})


@st.composite
def bodies(draw):
    """A body with right values, and up to three names whose values may be anything."""
    names = draw(st.sets(st.sampled_from(sorted(RIGHT)))) | {"prompt"}
    body = {name: draw(RIGHT[name]) for name in sorted(names)}
    wrong = draw(st.sets(st.sampled_from(NAMES), max_size=3))
    return body | {name: draw(ANYTHING) for name in sorted(wrong)}


@pytest.fixture
def url(policy_for, server_of, monkeypatch):
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    tokens = [7, *policy.processing_class.state.never_sampled]
    values = [-1.0, *[None] * (len(tokens) - 1)]
    monkeypatch.setattr(stand_in.engine, "sample", lambda *_: ([7], [values], [tokens]))
    with policy.serving(address, compare_every=1) as url:
        yield url


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies() | ANYTHING)
def test_a_body_of_any_types(url, body):
    answer = requests.post(f"{url}/v1/completions", data=json.dumps(body))
    assert answer.status_code in (200, 400, 422), answer.text  # 422: log-probs that are compared
    if answer.status_code != 200:
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_tokens", "5", "Got max_tokens='5'. Expected int, 1 to 2**31."),
        ("max_tokens", 0, "Got max_tokens=0."),
        ("n", True, "Got n=True."),
        ("n", 2.0, "Got n=2.0."),
        ("temperature", [1], "Got temperature=[1]. Expected float, 0 to 2**31."),
        ("temperature", -0.5, "Got temperature=-0.5."),
        ("temperature", float("nan"), "Got temperature=nan."),
        ("skip_special_tokens", 1, "Got skip_special_tokens=1. Expected bool"),
        ("logit_bias", {"a": 1}, "Got logit_bias={'a': 1}. Expected ids with numbers."),
        ("logit_bias", [5], "Got logit_bias=[5]."),
    ],
)
def test_what_is_no_number_is_named(url, name, value, message):
    answer = requests.post(f"{url}/v1/completions", data=json.dumps({"prompt": [5, 6], name: value}))
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(message)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff\xfe", b"", b"1" * 5_000])
def test_a_body_that_is_no_json(url, body):
    assert requests.post(f"{url}/v1/completions", data=body).status_code == 400


@pytest.mark.parametrize("body", [[], {}, {"init_info": 5}, {"init_info": {"rank_offset": "one"}}])
def test_a_group_without_an_offset(url, body):
    answer = requests.post(f"{url}/init_weight_transfer_engine", json=body)
    assert answer.status_code == 400


@pytest.mark.parametrize("key", [None, "sesame"])
def test_the_servers_get_vllms_key(key, policy_for, server_of, encode, complete, monkeypatch):
    """From a policy as from the command: `Servers` alone knows of it."""
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    if key:
        monkeypatch.setenv("VLLM_API_KEY", key)
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    with policy.serving(address) as url:
        assert complete(url, encode(policy, "What?", CAT)).status_code == 200
    assert stand_in.keys == {f"Bearer {key}" if key else None}
