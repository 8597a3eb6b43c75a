"""Who may ask a front, what for, and what it refuses."""

import pytest
import requests

from hf_vlm_rl import AutoVLMPolicy, UnsupportedModelError
from hf_vlm_rl.cli import main
from hf_vlm_rl.front import app, serving
from tests.front.conftest import CAT


def test_only_what_trainers_ask_is_passed_on(policy_for, server_of):
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    with policy.serving(address) as url:
        for path in (
            "/collective_rpc",
            "/sleep",
            "/v1/chat/completions",
            "/tokenize",
            "/inference/v1/generate",
        ):
            answer = requests.post(f"{url}{path}", json={})
            assert answer.status_code == 404
            assert "the front passes on" in answer.json()["error"]["message"]
        assert requests.post(f"{url}/health", json={}).status_code == 405
        for path in ("/health", "/server_info", "/v1/models"):
            assert requests.get(f"{url}{path}").status_code == 200
    assert stand_in.posted == []


def test_a_token_is_asked_for(policy_for, server_of, encode, complete, caplog):
    policy = policy_for("qwen2_5_vl")
    _, address = server_of(policy)
    ids = encode(policy, "What?", CAT)
    with serving.serving(policy.tokenizer, [address], token="open sesame") as url:
        assert complete(url, ids).status_code == 401
        bare = url.removeprefix("http://")
        assert complete(f"http://any:wrong@{bare}", ids).status_code == 401
        assert complete(f"http://any:open sesame@{bare}", ids).status_code == 200
        headers = {"Authorization": "Bearer open sesame"}
        assert requests.get(f"{url}/health", headers=headers).status_code == 200
        assert requests.get(f"{url}/health", headers={"Authorization": "Basic %%%"}).status_code == 401
        assert requests.get(f"{url}/tickets").status_code == 200
    assert "open sesame" not in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"servers": []}, "Got no server"),
        ({"servers": ["gpu:8000"]}, "Got the server 'gpu:8000'"),
        ({"servers": ["http://gpu:8000/v1"]}, "Got the server 'http://gpu:8000/v1'"),
        ({"host": "0.0.0.0"}, "other machines reach, and no token"),
        ({"host": "::"}, "other machines reach, and no token"),
        ({"host": "nobody.invalid"}, "Expected an address of this machine"),
        ({"servers": ["http://gpu:8000", "http://gpu:8000/"]}, "one of them twice"),
        ({"compare_every": 0}, "Got compare_every=0"),
    ],
)
def test_settings_that_make_no_sense(options, message, policy_for):
    given = {"servers": ["http://gpu:8000"]} | options
    with (
        pytest.raises(ValueError, match=message),
        serving.serving(policy_for("qwen2_5_vl").tokenizer, **given),
    ):
        pass


def test_a_body_that_is_too_large_or_no_json(policy_for, server_of, monkeypatch):
    monkeypatch.setattr(app, "BODY_BYTES", 1000)
    policy = policy_for("qwen2_5_vl")
    _, address = server_of(policy)
    with policy.serving(address) as url:
        assert requests.post(f"{url}/v1/completions", data=b" " * 2000).status_code == 413
        assert requests.post(f"{url}/v1/completions", data=b"{").status_code == 400
        assert requests.post(f"{url}/v1/completions", data=b"[]").status_code == 400


def test_prompts_that_attend_in_both_directions(policy_for):
    with pytest.raises(UnsupportedModelError, match="attend in both directions"):
        policy_for("paligemma").serving("http://gpu:8000")


def test_nobody_listens_behind_the_block(policy_for, server_of):
    policy = policy_for("qwen2_5_vl")
    _, address = server_of(policy)
    with policy.serving(address) as url:
        assert requests.get(f"{url}/health").status_code == 200
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{url}/health")


def test_a_front_without_the_weights(checkpoint, policy_for, server_of, encode, complete):
    """As `hf-vlm-rl vllm-front` runs it: the same tickets, read from the policy's store on disk."""
    policy = policy_for("qwen2_5_vl")
    _, address = server_of(policy)
    tokenizer = AutoVLMPolicy.tokenizer(checkpoint("qwen2_5_vl"))
    with serving.serving(tokenizer, [address]) as url:
        salt = requests.get(f"{url}/tickets").json()["salt"]
        answer = complete(url, encode(policy, "What?", CAT))
    assert salt == policy.processing_class.codec.salt
    assert answer.status_code == 200


def test_the_command_refuses_other_machines_without_a_token(checkpoint, capsys, monkeypatch):
    monkeypatch.delenv("HF_VLM_RL_FRONT_TOKEN", raising=False)
    arguments = [
        "vllm-front",
        str(checkpoint("qwen2_5_vl")),
        "--server",
        "http://gpu:8000",
        "--host",
        "0.0.0.0",
    ]
    assert main(arguments) == 1
    assert "HF_VLM_RL_FRONT_TOKEN" in capsys.readouterr().err
