"""TRL's asynchronous trainers train images on a real `vllm serve`, by way of `hf-vlm-rl vllm-front`."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from statistics import fmean

import pytest
import requests

from tests.documents.examples.conftest import SCRIPTS, TINY
from tests.images import photo
from tests.vllm.engine import cpu
from tests.vllm.engine.async_parts import unload_adapters

pytestmark = pytest.mark.trl
# Rounding of float32 on both sides.
CLOSE = 2e-5
FAMILY = "qwen2_5_vl"
LORA = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "8")
# TRL asks CUDA for the name of the card, on a CPU as well; everything else is the script's own.
WITHOUT_CARD = """
import runpy, sys
from tests.trainers.asynchronous import asynchronous, without_card

without_card(asynchronous("async_grpo")[0])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return os.environ | {"HF_VLM_RL_CACHE": str(tmp_path_factory.mktemp("store"))}


@contextmanager
def fronted(checkpoint, log, environment, *options):
    """Addresses of a `vllm serve` and of a front for it."""
    with cpu.serving(checkpoint, log, None, *options) as server:
        command = [sys.executable, "-m", "hf_vlm_rl.cli", "vllm-front", str(checkpoint)]
        command += ["--server", server, "--port", "0"]
        front = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            yield server, front.stdout.readline().split()[0]
        finally:
            front.terminate()
            assert front.wait(30) == 0


@pytest.fixture(scope="module")
def adapters(served, tmp_path_factory, environment):
    """The same of a server that loads adapters."""
    log = tmp_path_factory.mktemp("serve") / "serve.log"
    with fronted(served(FAMILY), log, environment, *LORA) as addresses:
        yield addresses


def program(environment, *arguments):
    """What a Python program printed, and how it ended."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def results(environment, name, *arguments):
    """The lines of results of one of the programs beside this file."""
    ended = program(environment, "-m", f"tests.vllm.engine.{name}", *arguments)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, ended.stdout[-3000:] + ended.stderr[-3000:]
    return [json.loads(line.removeprefix("RESULT ")) for line in lines]


def seen(result, name):
    """What the worker counted; in a step during which no conversation ended, it logs nothing."""
    return [value for value in result[name] if value is not None]


def check_run(result):
    assert result["policy"]
    assert result["steps"] == 5
    assert result["images"] == 1
    assert result["encoded"] > 0
    assert result["versions"] >= 5
    assert result["stayed"] == []
    # The first samples are of the weights that are trained. Those of later steps may be older, and learn on.
    assert abs(result["ratio"][0] - 1) < 1e-3
    assert abs(result["kl"][0]) < 1e-3
    assert all(0.5 < ratio < 2 for ratio in result["ratio"])
    assert all(1e-6 < kl < 1 for kl in result["kl"][1:])
    assert result["after"] < CLOSE


def test_async_grpo_with_all_weights_and_no_sample_that_is_older(served, environment, tmp_path):
    with fronted(served(FAMILY), tmp_path / "serve.log", environment) as (server, front):
        (result,) = results(environment, "async_run", served(FAMILY), server, front, "all")
    check_run(result)
    assert set(result["sample/staleness_max"]) == {0}
    assert sum(dropped or 0 for dropped in result["sample/dropped_stale_total"]) > 0


def test_async_grpo_with_an_adapter_and_samples_that_are_older(served, environment, adapters):
    (result,) = results(environment, "async_run", served(FAMILY), *adapters, "adapter")
    check_run(result)
    assert 1 <= max(result["sample/staleness_max"]) <= 3


def test_an_environment_and_its_tool_show_images(served, environment, adapters):
    try:
        (result,) = results(environment, "async_tools", served(FAMILY), *adapters)
    finally:  # it has taught the server to call
        server, front = adapters
        given = {"method": "reload_weights", "kwargs": {"weights_path": str(served(FAMILY))}}
        assert requests.post(f"{server}/collective_rpc", json=given).status_code == 200
        assert requests.post(f"{front}/reset_prefix_cache").status_code == 200
    assert result["images"] == 2
    assert result["stayed"] == []
    # It calls in more than half of its conversations, and in one step a few may end without.
    assert max(seen(result, "tools/call_frequency")) > 0
    assert max(result["rewards/Photo"]) > 0
    assert max(seen(result, "tools/failure_frequency")) == 0
    assert max(seen(result, "rollout/turns_mean")) > 1
    # Each turn's ids begin with those of the turn before, marks of images included. A call that was sampled
    # in another spelling than the template's is written anew: of 37 turns, one was.
    assert set(seen(result, "rollout/fork_frac")) == {0}
    assert fmean(seen(result, "rollout/realign_frac")) < 0.2
    assert abs(result["ratio"][0] - 1) < 1e-3
    assert abs(result["kl"][0]) < 1e-3
    assert result["after"] < CLOSE
    assert result["under another image"] > 0.1


def test_a_teacher_of_async_distillation(served, environment, adapters):
    _, front = adapters
    same, random = results(environment, "async_distillation", served(FAMILY), front)
    for result in (same, random):
        assert result["encoded"] > 0
        assert result["stayed"] == []
    assert abs(same["jsd"][0]) < 1e-6
    assert random["jsd"][0] > 1e-2
    assert random["jsd"][-1] < 0.5 * random["jsd"][0]


def test_the_example(served, environment, adapters, tmp_path):
    rows = [
        {"file_name": f"{name}.png", "question": "What is it?", "answer": name}
        for name in ("cat", "coffee", "rocket")
    ]
    data = tmp_path / "data"
    data.mkdir()
    for row in rows:
        photo(row["answer"], (112, 112)).save(data / row["file_name"])
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    places = {"model": served(FAMILY), "data": data, "output_dir": tmp_path / "out"}
    sizes = {"held_out": 1, "lora_r": 4, "num_generations": 2, "max_completion_length": 6}
    given = TINY | places | sizes | {"vllm_server_base_url": adapters[1], "queue_maxsize": 8}
    options = [text for name, value in given.items() for text in (f"--{name}", value)]
    ended = program(environment, "-c", WITHOUT_CARD, SCRIPTS / "async_grpo_vqa.py", *options)
    assert ended.returncode == 0, ended.stderr[-3000:]
    card = json.loads((tmp_path / "out/adapter/card.json").read_text())
    assert {each["metric"] for each in card["evaluations"]} == {"normalized_match_reward", "format_reward"}
    assert (tmp_path / "out/adapter/adapter_model.safetensors").is_file()
    unload_adapters(adapters[1])
