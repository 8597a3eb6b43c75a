"""Two processes: rows are shared under DDP and done by both under FSDP2; an error in one ends both."""

import functools
import json
from collections import Counter

import pytest

from hf_vlm_rl.evaluation import EvaluationResult
from tests.trainers.distributed.launch import on_two_ranks

pytestmark = [pytest.mark.trl, pytest.mark.slow]


@pytest.fixture(scope="session")
def run(checkpoint, tmp_path_factory):
    """`run(kind)`: where two processes left their results before a step (0) and after (2)."""

    @functools.cache
    def launch(kind):
        out = tmp_path_factory.mktemp(kind)
        on_two_ranks("tests.evaluation.ranked", checkpoint("internvl"), out, kind)
        return out

    return launch


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_processes_give_what_one_gives_and_both_have_it(kind, run, greedy):
    for step in (0, 2):
        results = [EvaluationResult.load(run(kind) / f"rank-{rank}-{step}.json") for rank in (0, 1)]
        assert results[0] == results[1]
        assert results[0].row_ids == greedy.row_ids
    assert EvaluationResult.load(run(kind) / "rank-0-0.json") == greedy


def test_machines_without_a_shared_folder_resume_a_finished_run(run):
    """Only the first machine has the results that were written; none evaluates alone, and all compare."""
    out = run("nodes")
    assert not list(out.glob("node-1/evaluation/*"))
    told = {path.name: path.read_text() for path in out.glob("rank-*")}
    assert len(told) == 4
    assert len(set(told.values())) == 1


def test_an_error_in_one_process_is_told_to_the_other(run):
    own = (run("ddp") / "rank-1").read_text()
    assert own.startswith("ImageError: Row 1, image 0: Cannot read")
    assert (run("ddp") / "rank-0").read_text() == f"RuntimeError: The evaluation failed in process 1: {own}"


def test_drawn_failures_on_one_process_are_those_of_one_process_alone(run):
    """Missing, cut off and empty files, rows without a prompt, rewards that fail; datasets and streams."""
    ranks = [json.loads((run("attacked") / f"rank-{rank}").read_text()) for rank in (0, 1)]
    ends = Counter()
    for (alone, *first), (also_alone, *second) in zip(*ranks, strict=True):
        assert alone == also_alone
        together = {*first, *second}
        if alone.startswith("scored: "):
            assert together == {alone}
            ends["result"] += 1
        elif len(together) == 1:  # both see the same: no row was evaluated
            assert together == {alone}
            ends["same error"] += 1
        else:  # each has its own, or it is told the other's
            told = [said for said in together if said.startswith("RuntimeError: The evaluation failed in")]
            own = together.difference(told)
            assert all(any(said.endswith(error) for error in own) for said in told)
            assert type_of(alone) in map(type_of, own)
            ends["told" if told else "each its own"] += 1
    assert ends["result"] >= 4, ends
    assert ends["told"] >= 2, ends


def type_of(error):
    return error.partition(":")[0]
