"""Several servers behind one front: who answers, who is lost, and what all of them get."""

import socket
import time

import aiohttp
import pytest
import requests

from hf_vlm_rl.front import servers
from tests.front.conftest import CAT
from tests.vllm.stand_in import listening


@pytest.fixture
def soon(monkeypatch):
    """A lost server is asked again at once."""
    monkeypatch.setattr(servers, "PAUSE", 0.0)


def test_the_least_busy_answers(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    (first, one), (second, other) = server_of(policy), server_of(policy)
    with policy.serving(one, other) as url:
        answer = complete(url, 4 * [encode(policy, "What?", CAT)])
    assert answer.status_code == 200
    assert len(first.asked) == len(second.asked) == 2


def test_a_lost_server_drops_out_and_comes_back(policy_for, server_of, encode, complete, soon):
    policy = policy_for("qwen2_5_vl")
    (stays, one), (goes, other) = server_of(policy), server_of(policy)
    port, ids = int(other.rpartition(":")[2]), encode(policy, "What?", CAT)
    with listening(goes) as lost:
        pass  # an address where nobody listens any more
    with policy.serving(one, lost) as url:
        assert complete(url, [ids, ids]).status_code == 200
        assert len(stays.asked) == 2
        with listening(goes, int(lost.rpartition(":")[2])):
            for _ in range(100):
                assert complete(url, [ids, ids]).status_code == 200
                if goes.asked:
                    break
    assert goes.asked
    assert port != int(lost.rpartition(":")[2])


@pytest.fixture
def address():
    """An address where nobody listens yet."""
    with socket.create_server(("127.0.0.1", 0)) as accepting:
        return f"http://127.0.0.1:{accepting.getsockname()[1]}"


def test_a_restarted_server_without_the_weights_stays_out(policy_for, server_of, encode, complete, address):
    policy = policy_for("qwen2_5_vl")
    stand_in, _ = server_of(policy)
    ids, port = encode(policy, "What?", CAT), int(address.rpartition(":")[2])
    with policy.serving(address) as url:
        with listening(stand_in, port):
            assert complete(url, ids).status_code == 200
            assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
            stand_in.engine.llm.reset_encoder_cache()
            assert complete(url, ids).status_code == 200
        assert complete(url, ids).status_code == 503
        stand_in.instance = "restarted"
        with listening(stand_in, port):
            answer = complete(url, ids)
            assert answer.status_code == 503
            assert "were restarted after weights had been sent" in answer.json()["error"]["message"]
            assert requests.post(f"{url}/reset_prefix_cache", json={}).status_code == 200
            assert complete(url, ids).status_code == 503
            assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
            assert complete(url, ids).status_code == 200


def test_a_server_that_was_out_of_reach_has_its_weights(policy_for, server_of, encode, complete, address):
    policy = policy_for("qwen2_5_vl")
    stand_in, _ = server_of(policy)
    ids, port = encode(policy, "What?", CAT), int(address.rpartition(":")[2])
    with policy.serving(address) as url:
        with listening(stand_in, port):
            assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
        assert complete(url, ids).status_code == 503
        with listening(stand_in, port):
            assert complete(url, ids).status_code == 200


def test_a_lost_connection_is_no_lost_server(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    stand_in, server = server_of(policy)
    ids = encode(policy, "What?", CAT)
    with policy.serving(server) as url:
        assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
        stand_in.drops = 1
        assert complete(url, ids).status_code == 200
        stand_in.drops = 2  # no endless asking
        assert complete(url, ids).status_code == 503
        assert complete(url, ids).status_code == 200


def test_a_server_that_missed_weights_stays_out(policy_for, server_of, encode, complete, soon, address):
    policy = policy_for("qwen2_5_vl")
    (stays, one), (misses, _) = server_of(policy), server_of(policy)
    ids, port = encode(policy, "What?", CAT), int(address.rpartition(":")[2])
    with policy.serving(one, address) as url:
        with listening(misses, port):
            assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
        assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
        with listening(misses, port):
            assert complete(url, [ids, ids]).status_code == 200
    assert (len(stays.asked), len(misses.asked)) == (2, 0)


def test_nobody_answers(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    stand_in, _ = server_of(policy)
    with listening(stand_in) as address:
        pass
    with policy.serving(address) as url:
        began = time.monotonic()
        answer = complete(url, encode(policy, "What?", CAT))
        assert requests.get(f"{url}/health").status_code == 503
    assert answer.status_code == 503
    assert f"None of the vLLM servers ['{address}'] can be reached" in answer.json()["error"]["message"]
    assert time.monotonic() - began < 60  # no endless waiting


@pytest.fixture
def impatient(monkeypatch):
    """A server that does not answer has to say soon that it is well."""
    monkeypatch.setattr(servers, "WATCH", 0.3)
    monkeypatch.setattr(servers, "SHORT", aiohttp.ClientTimeout(sock_read=0.3))


def test_a_server_that_hangs_is_lost_and_another_answers(
    policy_for, server_of, encode, complete, soon, impatient
):
    policy = policy_for("qwen2_5_vl")
    (hangs, one), (answers, other) = server_of(policy), server_of(policy)
    ids = encode(policy, "What?", CAT)
    hangs.hangs = True
    with policy.serving(one, other) as url:
        assert complete(url, [ids, ids]).status_code == 200
        assert len(answers.asked) == 2
        answers.hangs = True
        assert complete(url, ids).status_code == 503
        hangs.hangs = answers.hangs = False
        assert complete(url, ids).status_code == 200


def test_a_lost_server_whose_port_hangs_keeps_no_request_waiting(
    policy_for, server_of, encode, complete, soon
):
    policy = policy_for("qwen2_5_vl")
    _, server = server_of(policy)
    with socket.create_server(("127.0.0.1", 0)) as accepting:
        port = accepting.getsockname()[1]
    with policy.serving(f"http://127.0.0.1:{port}", server) as url:
        assert complete(url, encode(policy, "What?", CAT)).status_code == 200
        with socket.create_server(("127.0.0.1", port)):
            began = time.monotonic()
            assert complete(url, encode(policy, "What?", CAT)).status_code == 200
    assert time.monotonic() - began < 9  # `/health` would be waited for 10 s


def test_one_that_answers_with_errors_is_asked_last(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    (_, one), (fails, other) = server_of(policy), server_of(policy)
    fails.failures = 100 * [500]
    ids = encode(policy, "What?", CAT)
    with policy.serving(one, other) as url:
        assert [complete(url, [ids, ids]).status_code for _ in range(6)] == 6 * [200]
    assert len(fails.asked) < 6


@pytest.mark.parametrize("path", ["/start_weight_update", "/update_weights", "/finish_weight_update"])
def test_a_server_that_missed_a_part_of_the_weights_stays_out(policy_for, server_of, encode, complete, path):
    policy = policy_for("qwen2_5_vl")
    (whole, one), (misses, other) = server_of(policy), server_of(policy)
    ids = encode(policy, "What?", CAT)
    paths = ("/start_weight_update", "/update_weights", "/finish_weight_update")
    with policy.serving(one, other) as url:
        misses.statuses = {path: 500}
        statuses = [requests.post(f"{url}{each}", json={}).status_code for each in paths]
        assert statuses == [500 if each == path else 200 for each in paths]
        assert complete(url, [ids, ids]).status_code == 200
        assert (len(whole.asked), len(misses.asked)) == (2, 0)
        misses.statuses = {}
        for each in paths:
            assert requests.post(f"{url}{each}", json={}).status_code == 200
        assert complete(url, [ids, ids]).status_code == 200
    assert (len(whole.asked), len(misses.asked)) == (3, 1)


def test_an_adapter_that_all_refuse_changes_nothing(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    stand_in, server = server_of(policy)
    with policy.serving(server) as url:
        assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
        stand_in.statuses = {"/v1/load_lora_adapter": 400}
        assert requests.post(f"{url}/v1/load_lora_adapter", json={}).status_code == 400
        assert complete(url, encode(policy, "What?", CAT)).status_code == 200
        stand_in.statuses = {}
        assert requests.post(f"{url}/v1/load_lora_adapter", json={}).status_code == 200
        assert complete(url, encode(policy, "What?", CAT)).status_code == 200


def test_a_restart_between_requests_is_seen(policy_for, server_of, encode, complete, monkeypatch):
    monkeypatch.setattr(servers, "IDLE", 0.0)
    policy = policy_for("qwen2_5_vl")
    stand_in, server = server_of(policy)
    ids = encode(policy, "What?", CAT)
    with policy.serving(server) as url:
        assert requests.post(f"{url}/finish_weight_update", json={}).status_code == 200
        assert complete(url, ids).status_code == 200
        stand_in.instance = "restarted"
        answer = complete(url, ids)
    assert answer.status_code == 503
    assert "were restarted after weights had been sent" in answer.json()["error"]["message"]


def test_each_server_is_compared(policy_for, server_of, encode, complete):
    policy = policy_for("qwen2_5_vl")
    (_, one), (differs, other) = server_of(policy), server_of(policy)
    sample = differs.engine.sample

    def of_another_model(*given):
        completion, values, tokens = sample(*given)
        return completion, [[value - 0.5 for value in row] for row in values], tokens

    ids = encode(policy, "What?", CAT)
    with policy.serving(one, other) as url:
        differs.engine.sample = of_another_model
        answer = complete(url, [ids, encode(policy, "Hi.")])
    assert answer.status_code == 422


def test_a_group_without_one_of_the_servers_is_refused(policy_for, server_of, address):
    policy = policy_for("qwen2_5_vl")
    _, server = server_of(policy)
    with policy.serving(server, address) as url:
        answer = requests.get(f"{url}/get_world_size")
    assert answer.status_code == 503
    assert address in answer.json()["error"]["message"]


def test_weights_go_to_all_servers_in_one_group(policy_for, server_of):
    policy = policy_for("qwen2_5_vl")
    (first, one), (second, other) = server_of(policy), server_of(policy)
    first.workers, second.workers = 2, 3
    joining = {"init_info": {"master_address": "trainer", "rank_offset": 1, "world_size": 6}}
    with policy.serving(one, other) as url:
        assert requests.get(f"{url}/get_world_size").json() == {"world_size": 5}
        assert requests.post(f"{url}/init_weight_transfer_engine", json=joining).status_code == 200
        assert requests.post(f"{url}/update_weights", json={"names": ["a"]}).status_code == 200
        second.statuses = {"/update_weights": 500}
        assert requests.post(f"{url}/update_weights", json={"names": ["b"]}).status_code == 500
    ranks = [stand_in.posted[0][1]["init_info"] for stand_in in (first, second)]
    assert [info["rank_offset"] for info in ranks] == [1, 3]
    assert {info["world_size"] for info in ranks} == {6}
    sent = [("/update_weights", {"names": [name]}) for name in "ab"]
    assert first.posted[1:] == second.posted[1:] == sent
