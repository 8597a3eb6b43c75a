"""Stock and policy on a pretend card, each family in a process of its own, and what is known of CUDA."""

import json
import os
import subprocess
import sys

import pytest
import torch
from packaging.version import Version

from tests.documents.pages import ROOT
from tests.lanes import KINDS

# Waits of the policy beyond stock's, at most. docs/performance.md has them all.
MORE = {"forward and backward": 4, "generate, 16 tokens": 8, "GRPO step": 12, "DPO step": 8}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        Version(torch.__version__) < Version("2.14"), reason="the card is made for torch 2.14 and 2.15"
    ),
]


def on_card(*line: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    line = [sys.executable, "-W", "ignore", *line]
    env = os.environ | {"HF_HUB_OFFLINE": "1"} | (environment or {})
    return subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.trl
@pytest.mark.once
@pytest.mark.parametrize("family", KINDS)
def test_a_family_equals_stock_on_a_card_and_waits_no_more_than_stated(family):
    ended = on_card("-m", "tests.card", "--json", family)
    assert ended.returncode == 0, ended.stderr[-3000:]
    measured = json.loads(ended.stdout.splitlines()[-1])[family]
    assert max(measured["differ"]) <= 1
    assert measured["greedy"]
    known = ["generate: prompt tokens attend in both directions"] if family == "paligemma" else []
    assert measured["not_shared"] == known
    for phase, waits in measured["waits"].items():
        assert waits["policy"] <= waits["stock"] + MORE[phase], (phase, measured["places"][phase])
    kernels, layers = measured["kernels"], measured["layers"]
    assert kernels["policy"] <= kernels["stock"] + 5 * layers


KNOWN_OF_CUDA = """
from tests.card.driver import insert_card
counts = insert_card()
import copy, torch

def raises(text, function):
    try:
        function()
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

def waits(function):
    before = counts.waits.copy()
    function()
    return sorted(kind for (kind, _), number in (counts.waits - before).items() for _ in range(number))

x, pageable = torch.arange(4.0, device="cuda"), torch.ones(3)
assert x.is_cuda and x.device == torch.device("cuda:0")
raises("same device", lambda: x[:3] + pageable)
raises("same device", lambda: torch.cat([x, pageable]))
raises("not implemented", lambda: torch.ones(2, 2).long().cuda() @ torch.ones(2, 2).long().cuda())
assert waits(lambda: x + torch.tensor(2.0)) == []
assert waits(lambda: x.to("cuda")) == []
assert waits(lambda: bool((x > 1).any())) == ["read"]
assert waits(lambda: (x.tolist(), x.cpu())) == ["download"] * 2
assert waits(lambda: (x[x > 1], x.nonzero(), x.unique())) == ["size"] * 3
assert waits(lambda: x.masked_fill(x > 1, 0)) == []
assert waits(lambda: torch.tensor([1, 2], device="cuda")) == ["upload"]
assert waits(lambda: pageable.to("cuda", non_blocking=True)) == []
large = torch.ones(1 << 15)
assert waits(lambda: large.to("cuda", non_blocking=True)) == ["upload"]
assert waits(lambda: large.pin_memory().to("cuda", non_blocking=True)) == []
assert waits(lambda: torch.equal(x, x)) == ["compare"]

host = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
there = copy.deepcopy(host).to("cuda")
batch = torch.randn(5, 4)
host(batch).square().sum().backward()
there(batch.cuda()).square().sum().backward()
for mine, theirs in zip(host.parameters(), there.parameters()):
    torch.testing.assert_close(mine.grad, theirs.grad.cpu())
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert there(batch.cuda()).dtype == torch.bfloat16
"""


def test_the_card_raises_and_waits_where_cuda_does():
    ended = on_card("-c", KNOWN_OF_CUDA)
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.trl
@pytest.mark.once
def test_the_command_for_a_card_runs_on_it(tmp_path):
    """`make gpu` on tiny models: the parts that count and compare."""
    (tmp_path / "sitecustomize.py").write_text("from tests.card.driver import insert_card\ninsert_card()\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    line = ["-m", "benchmarks.gpu", "--device", "cuda", "--tiny", "--out", str(tmp_path), "--parts"]
    ended = on_card(*line, "syncs", "preprocessing", environment={"PYTHONPATH": path})
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]
    assert "2 parts of 2 ended well" in ended.stdout
