"""Two processes: rows are shared under DDP and done by both under FSDP2; an error in one ends both."""

import functools

import pytest

from hf_vlm_rl.evaluation import EvaluationResult
from tests.trainers.distributed.launch import on_two_ranks

pytestmark = pytest.mark.trl


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


def test_an_error_in_one_process_is_told_to_the_other(run):
    own = (run("ddp") / "rank-1").read_text()
    assert own.startswith("ImageError: Row 1, image 0: Cannot read")
    assert (run("ddp") / "rank-0").read_text() == f"RuntimeError: The evaluation failed in process 1: {own}"
