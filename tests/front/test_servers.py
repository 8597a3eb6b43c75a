"""Several servers behind one front: who answers, who is lost, and what all of them get."""

import socket
import time

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
            assert complete(url, [ids, ids]).status_code == 200
    assert len(goes.asked) == 1
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
