"""Verdicts on disk: asked once, by whichever thread, process or run."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.rewards.judging.stand_in import status

PROGRAM = """
import sys
from hf_vlm_rl.rewards import ScoreJudge
from tests.images import photo
from tests.rewards.judging.conftest import CRITERIA
judge = ScoreJudge(url=sys.argv[1], model="judge", criteria=CRITERIA, cache=sys.argv[2])
prompts = [[{"role": "user", "content": "What is in cat?"}]] * 3
print(judge(["a", "b", "c"], prompts=prompts, image=[photo("cat", (32, 24))] * 3), judge.usage.requests)
"""


def test_a_verdict_is_asked_for_once(judging, tmp_path):
    judge = judging.score(cache=tmp_path)
    rows = judging.rows("cat", "coffee")
    first = judge(["A cat.", "A cup."], **rows)
    assert (first, judge.usage.requests, judge.usage.cached) == ([0.5, 0.5], 2, 0)
    again = judging.score(cache=str(tmp_path))
    assert again(["A cat.", "A cup."], **rows) == first
    assert (again.usage.requests, again.usage.cached) == (0, 2)
    assert len(judging.server.asked) == 2


def test_equal_rows_of_a_batch_are_asked_about_once(judging):
    assert judging.score()(["A cat."] * 4, **judging.rows(*["cat"] * 4)) == [0.5] * 4
    assert len(judging.server.asked) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"model": "other"},
        {"criteria": "It is short."},
        {"high": 5},
        {"structured": False},
        {"options": {"temperature": 1.0}},
    ],
)
def test_another_judge_is_asked_anew(other, judging, tmp_path):
    from hf_vlm_rl.rewards import ScoreJudge

    judging.score(cache=tmp_path)(["A cat."], **judging.rows("cat"))
    options = {
        "url": judging.url,
        "model": "judge",
        "criteria": "It says what the photo shows.",
        "cache": tmp_path,
    }
    ScoreJudge(**options | other)(["A cat."], **judging.rows("cat"))
    assert len(judging.server.asked) == 2


def test_failures_are_not_kept(judging, tmp_path):
    judge = judging.score(cache=tmp_path)
    judge(["A cup."], **judging.rows("cat"))
    judging.server.acts = [status(400)]
    assert judge(["A cat."], **judging.rows("cat")) == [None]
    assert judge(["A cat."], **judging.rows("cat")) == [0.5]


@pytest.mark.parametrize("damage", [b"", b'{"reason": "so", "score": 99}', b"\xff\xfe", b'{"reason": "so"'])
def test_a_file_that_is_no_verdict_is_asked_for_and_replaced(damage, judging, tmp_path):
    judge = judging.score(cache=tmp_path)
    judge(["A cat."], **judging.rows("cat"))
    (path,) = tmp_path.rglob("*.json")
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert judge(["A cat."], **judging.rows("cat")) == [0.5]
    assert path.read_bytes() == whole


def test_files_hold_the_verdict_alone(judging, tmp_path):
    judging.score(cache=tmp_path)(["A cat."], **judging.rows("cat"))
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == [
        '{"reason": "seen", "score": 5}'
    ]


def test_threads_share_a_folder(judging, tmp_path):
    judges = [judging.score(cache=tmp_path) for _ in range(4)]
    names = ["a", "b", "c"]

    def ask(judge):
        return judge(names, **judging.rows(*["cat"] * 3))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, judges)) == [[0.5] * 3] * 4
    assert len(list(tmp_path.rglob("*.json"))) == 3
    assert not list(tmp_path.rglob("*.tmp"))
    assert ask(judging.score(cache=tmp_path, budget=0)) == [0.5] * 3


def test_processes_share_a_folder(judging, tmp_path):
    command = [sys.executable, "-c", PROGRAM, judging.url, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.communicate()[0].startswith("[0.5, 0.5, 0.5]")
    judge = judging.score(cache=tmp_path)
    assert judge(["a", "b", "c"], **judging.rows(*["cat"] * 3)) == [0.5] * 3
    assert judge.usage.requests == 0


def test_a_folder_that_is_none_is_refused_at_once(judging, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        judging.score(cache=tmp_path / "file")


def test_a_disk_that_is_full_is_told_and_costs_no_verdict(judging, tmp_path, monkeypatch, caplog):
    judge = judging.score(cache=tmp_path)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert judge(["A cat."], **judging.rows("cat")) == [0.5]
    assert "could not be kept: [Errno 28] No space left on device" in caplog.text
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
