"""A front between a trainer's requests and vLLM: the images go along, and the answer is the policy's."""

import asyncio
import json
import re
import threading
import time

import pytest
import requests
from aiohttp import web

from hf_vlm_rl.policy import serving
from tests.front.asking import own
from tests.front.conftest import CAT, CUP
from tests.vllm.stand_in import listening

FAMILIES = ("qwen2_5_vl", "internvl", "idefics3", "llava")


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_are_the_policys(family, policy_for, server_of, encode, complete):
    policy = policy_for(family)
    stand_in, address = server_of(policy)
    prompts = [encode(policy, "Compare.", CUP, CAT), encode(policy, "Hi."), encode(policy, "What?", CAT)]
    with policy.serving(address) as url:
        answer = complete(url, prompts, n=2, temperature=0.8).json()
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == list(range(6))
    for choice, prompt in zip(choices, [prompt for prompt in prompts for _ in range(2)], strict=True):
        assert choice["prompt_token_ids"] == prompt
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in choice["token_ids"]]
        expected = own(policy, prompt, choice["token_ids"], 0.8)
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-4)
        assert choice["text"] == policy.processing_class.tokenizer.decode(
            choice["token_ids"], skip_special_tokens=True
        )
    assert sorted(len(body.get("content_parts", [])) for body in stand_in.asked) == [0, 1, 2]
    counts = answer["usage"]
    assert counts["prompt_tokens"] == sum(map(len, prompts))
    completed = sum(len(choice["token_ids"]) for choice in choices)
    assert counts["total_tokens"] == counts["prompt_tokens"] + completed


def test_the_other_image_is_another_prompt(policy_for, server_of, encode, complete):
    """The control: log-probs under another image of the same size are not those that the server gave."""
    policy = policy_for("qwen2_5_vl")
    _, address = server_of(policy)
    right, wrong = encode(policy, "What?", CAT), encode(policy, "What?", CAT.rotate(180))
    with policy.serving(address) as url:
        (choice,) = complete(url, right).json()["choices"]
    scored = own(policy, wrong, choice["token_ids"])
    assert choice["logprobs"]["token_logprobs"] != pytest.approx(scored, abs=1e-3)


def test_texts_with_marks_are_read(policy_for, server_of, encode, complete):
    """Online DPO sends texts."""
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    row = policy.tokenizer.with_tickets(
        {"prompt": f"{policy.processing_class.state.placeholder}What?", "images": [CAT]}
    )
    with policy.serving(address) as url:
        (choice,) = complete(url, row["prompt"]).json()["choices"]
    assert choice["prompt_token_ids"] == policy.tokenizer(row["prompt"])["input_ids"]
    assert len(stand_in.asked[0]["content_parts"]) == 1


def test_without_log_probs_and_ids_none_come(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    _, address = server_of(policy)
    with policy.serving(address) as url:
        asked = {"logprobs": None, "return_token_ids": False, "return_tokens_as_token_ids": False}
        (choice,) = complete(url, encode(policy, "What?", CAT), **asked).json()["choices"]
    assert choice["logprobs"] is None
    assert "token_ids" not in choice
    assert "prompt_token_ids" not in choice


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"stream": True}, r"Got \['stream'\]"),
        ({"echo": True}, r"Got \['echo'\]"),
        ({"logprobs": 3}, "Got logprobs=3. Expected 0"),
        ({"max_tokens": 500}, r"Row 1: its prompt has \d+ tokens, [1-9]\d* of them of images.*512 together"),
    ],
)
def test_what_cannot_be_had_is_refused(body, message, policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    with policy.serving(address) as url:
        answer = complete(url, [[5, 6], encode(policy, "What?", CAT)], **body)
    assert answer.status_code == 400
    assert re.search(message, answer.json()["error"]["message"])
    assert stand_in.asked == []


def with_ticket(policy, ids, ticket):
    """Ids with another ticket in the place of the first."""
    codec, anchor = policy.processing_class.codec, ids.index(policy.processing_class.state.placeholder_id)
    return [*ids[: anchor + 1], *codec.encode(ticket), *ids[anchor + codec.length :]]


def test_a_bad_ticket_is_refused_before_anything_is_asked(policy_for, server_of, encode, complete, caplog):
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    good = encode(policy, "What?", CAT)
    anchor = good.index(policy.processing_class.state.placeholder_id)
    bad = {
        "unknown": with_ticket(policy, good, 0x123456789ABCDEF),
        "cut": good[: anchor + policy.processing_class.codec.length + 2],
        "without": policy.processing_class.codec.erase(good),
    }
    with policy.serving(address) as url:
        for ids in bad.values():
            answer = complete(url, [good, [5, 6], ids], n=2)
            assert answer.status_code == 400
            assert answer.json()["error"]["message"].startswith("Row 2: ")
    assert stand_in.asked == []
    assert len([record for record in caplog.records if "Row 2: " in record.getMessage()]) == 3


def test_another_prompt_than_the_policys_is_no_answer(policy_for, server_of, encode, complete, monkeypatch):
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    expanded = stand_in.engine.expanded
    monkeypatch.setattr(stand_in.engine, "expanded", lambda *given: [5, *expanded(*given)])
    monkeypatch.setattr(stand_in.engine, "sample", lambda *given: ([7], [[-1.0]], [[7]]))
    with policy.serving(address) as url:
        answer = complete(url, [encode(policy, "What?", CAT)], logprobs=None)
    assert answer.status_code == 400
    assert "Row 0: vLLM saw another prompt than the policy" in answer.json()["error"]["message"]


def test_an_error_while_weights_are_sent_is_asked_once_more(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    with policy.serving(address) as url:
        stand_in.failures = [500]
        assert complete(url, encode(policy, "What?", CAT)).status_code == 200
        stand_in.failures = [500, 500]
        assert complete(url, encode(policy, "What?", CAT)).status_code == 500
    assert len(stand_in.asked) == 4


def test_another_model_is_refused_in_words(policy_for, server_of, encode, complete, monkeypatch):
    """At the first request, and again at the first after weights were sent."""
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    ids = encode(policy, "What?", CAT)
    sample = stand_in.engine.sample

    def other(*given):
        completion, values, tokens = sample(*given)
        return completion, [[value - 0.1 for value in row] for row in values], tokens

    with policy.serving(address) as url:
        assert complete(url, ids).status_code == 200
        monkeypatch.setattr(stand_in.engine, "sample", other)
        assert complete(url, ids).status_code == 200  # not compared
        assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
        answer = complete(url, ids)
        assert answer.status_code == 422
        assert re.search(r"vLLM's log-probs differ by 0\.\d+ a token", answer.json()["error"]["message"])
    with policy.serving(address, compare_every=1) as url:
        assert complete(url, ids).status_code == 422
        # What is cut off is another distribution, and not compared.
        assert complete(url, ids, top_p=0.9).status_code == 200
        # RLOO asks for no log-probs.
        assert complete(url, ids, logprobs=None).status_code == 422


def test_no_request_is_half_answered_when_other_weights_come(policy_for, server_of):
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    keep, kept = {"mode": "keep"}, {"mode": "keep", "clear_cache": "false"}

    def posted(url, *paths):
        stand_in.posted, stand_in.queries = [], []
        for path in paths:
            params = keep if path == "/pause" else {}
            assert requests.post(f"{url}{path}", params=params).status_code == 200
        return list(zip([path for path, _ in stand_in.posted], stand_in.queries, strict=True))

    adapter = ("/pause", "/v1/load_lora_adapter", "/resume")
    weights = ("/pause", "/start_weight_update", "/update_weights", "/finish_weight_update", "/resume")
    reset = ("/reset_encoder_cache", {})
    with policy.serving(address) as url:
        assert posted(url, *adapter) == [("/pause", kept), (adapter[1], {}), reset, ("/resume", {})]
        first, drained, *rest = posted(url, *weights)
        assert (first, drained) == (("/pause", kept), ("/pause", {"mode": "wait"}))
        assert rest == [*[(path, {}) for path in weights[1:4]], reset, ("/resume", {})]
        # Without a pause, or behind another one, vLLM is asked as the trainer asks.
        assert posted(url, "/reset_prefix_cache") == [("/reset_prefix_cache", {}), reset]
        stand_in.statuses = {"/pause": 500}
        requests.post(f"{url}/pause", params=keep)
        assert requests.post(f"{url}/start_weight_update").status_code == 500
        assert stand_in.posted[-1][0] == "/pause"


def test_stale_features_are_dropped_after_weights(policy_for, server_of):
    policy = policy_for("qwen2_5_vl")
    stand_in, address = server_of(policy)
    with policy.serving(address) as url:
        for path in ("/finish_weight_update", "/reset_prefix_cache", "/v1/load_lora_adapter", "/pause"):
            assert requests.post(f"{url}{path}", json={"sent": path}).status_code == 200
        stand_in.statuses = {"/reset_encoder_cache": 404}
        answer = requests.post(f"{url}/finish_weight_update", json={})
    reset = ("/reset_encoder_cache", None)
    paths = ("/finish_weight_update", "/reset_prefix_cache", "/v1/load_lora_adapter")
    expected = [each for path in paths for each in ((path, {"sent": path}), reset)]
    assert stand_in.posted[:7] == [*expected, ("/pause", {"sent": "/pause"})]
    assert answer.status_code == 500
    assert "VLLM_SERVER_DEV_MODE=1" in answer.json()["error"]["message"]


def test_an_answer_that_breaks_off_is_asked_for_again(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    stand_in, _ = server_of(policy)
    generate, breaks = stand_in.generate, [True]

    async def broken(request):
        if not breaks:
            return await generate(request)
        breaks.pop()
        response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"choices": [')
        request.transport.close()
        return response

    stand_in.generate = broken
    with listening(stand_in) as server, policy.serving(server) as url:
        assert complete(url, encode(policy, "What?", CAT)).status_code == 200
    assert not breaks


def test_a_completion_that_ended_by_an_error_is_none(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    stand_in, server = server_of(policy)
    answer = stand_in.answer

    def failed(body):
        said = json.loads(answer(body).text)
        for choice in said["choices"]:
            choice |= {"finish_reason": "error", "token_ids": [], "logprobs": {"content": []}}
        return web.json_response(said)

    stand_in.answer = failed
    with policy.serving(server) as url:
        refused = complete(url, encode(policy, "What?", CAT))
    assert refused.status_code == 500
    assert len(stand_in.asked) == 2


def test_what_nobody_expected_is_told_in_words_and_logged(policy_for, server_of, encode, complete, caplog):
    policy = policy_for("qwen2_5_vl")
    stand_in, _ = server_of(policy)

    async def no_models(request):
        return web.json_response({"data": []})

    stand_in.models = no_models
    with listening(stand_in) as server, policy.serving(server) as url:
        refused = complete(url, encode(policy, "What?", CAT))
    assert refused.status_code == 502
    assert "IndexError" in refused.json()["error"]["message"]
    assert "Traceback" in caplog.text


@pytest.mark.parametrize(("include", "text"), [(False, "yes"), (True, "yes stop")])
def test_a_string_that_ends_a_completion_is_cut_off_as_vllm_does(
    policy_for, server_of, encode, complete, include, text
):
    policy = policy_for("qwen2_5_vl")
    stand_in, server = server_of(policy)
    ids = policy.processing_class.tokenizer("yes stop", add_special_tokens=False)["input_ids"]
    never = policy.processing_class.state.never_sampled
    values, tokens = [[-0.1, *[-50.0] * len(never)]] * len(ids), [[each, *never] for each in ids]
    stand_in.engine.sample = lambda *_: (ids, values, tokens)
    answer = stand_in.answer

    def stopped(body):
        said = json.loads(answer(body).text)
        said["choices"][0]["finish_reason"] = "stop"
        return web.json_response(said)

    stand_in.answer = stopped
    asked = {"stop": ["never", " stop"], "include_stop_str_in_output": include, "top_p": 0.9}
    with policy.serving(server) as url:
        choice = complete(url, encode(policy, "What?", CAT), **asked).json()["choices"][0]
    assert (choice["text"], choice["stop_reason"], choice["token_ids"]) == (text, " stop", ids)


def test_log_probs_at_a_low_temperature_are_finite(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    stand_in, server = server_of(policy)
    never = policy.processing_class.state.never_sampled
    stand_in.engine.sample = lambda *_: ([7], [[-0.1, *[-9999.0] * len(never)]], [[7, *never]])
    ids = encode(policy, "What?", CAT)
    with policy.serving(server) as url:
        answer = complete(url, ids, temperature=0.01, top_p=0.9)
        refused = complete(url, ids, temperature=0.001)
    assert answer.json()["choices"][0]["logprobs"]["token_logprobs"] == [-0.1]
    assert refused.status_code == 400
    assert "vLLM raises what lies between" in refused.json()["error"]["message"]


def test_features_are_dropped_though_the_trainer_gave_up(policy_for, server_of):
    policy = policy_for("qwen2_5_vl")
    stand_in, _ = server_of(policy)
    take, given_up = stand_in.take, threading.Event()

    async def slow(request):
        answer = await take(request)
        while request.path == "/finish_weight_update" and not given_up.is_set():
            await asyncio.sleep(0.02)
        return answer

    stand_in.take = slow
    with listening(stand_in) as server, policy.serving(server) as url:
        with pytest.raises(requests.Timeout):
            requests.post(f"{url}/finish_weight_update", json={}, timeout=0.5)
        given_up.set()
        for _ in range(100):
            if "/reset_encoder_cache" in [path for path, _ in stand_in.posted]:
                break
            time.sleep(0.05)
    assert "/reset_encoder_cache" in [path for path, _ in stand_in.posted]


def test_a_web_page_gets_no_answer(policy_for, server_of):
    policy = policy_for("qwen2_5_vl")
    stand_in, server = server_of(policy)
    with policy.serving(server) as url:
        answer = requests.post(f"{url}/pause", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert stand_in.posted == []


def test_no_comparison_outlives_the_block(policy_for, server_of, encode, complete, monkeypatch):
    policy = policy_for("qwen2_5_vl")
    _, server = server_of(policy)
    ended, own = [], serving.logprobs_of

    def slow(*given):
        time.sleep(0.5)
        values = own(*given)
        ended.append(True)
        return values

    monkeypatch.setattr(serving, "logprobs_of", slow)
    asked = {"model": "tiny", "prompt": encode(policy, "What?", CAT), "max_tokens": 2, "logprobs": 0}
    with policy.serving(server) as url, pytest.raises(requests.Timeout):
        requests.post(f"{url}/v1/completions", json=asked, timeout=0.4)
    begun = len(ended)
    time.sleep(1.0)
    assert len(ended) == begun


@pytest.mark.parametrize(("every", "times"), [(1, 5), (2, 3), (100, 1)])
def test_requests_without_log_probs_are_compared_as_often(
    policy_for, server_of, encode, complete, monkeypatch, every, times
):
    policy = policy_for("qwen2_5_vl")
    _, server = server_of(policy)
    compared, of_policy = [], serving.logprobs_of
    monkeypatch.setattr(serving, "logprobs_of", lambda *given: compared.append(given) or of_policy(*given))
    with policy.serving(server, compare_every=every) as url:
        answers = [complete(url, encode(policy, "What?", CAT), logprobs=None) for _ in range(5)]
    assert [answer.json()["choices"][0]["logprobs"] for answer in answers] == 5 * [None]
    assert len(compared) == times
