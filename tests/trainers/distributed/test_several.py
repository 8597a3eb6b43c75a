"""DDP on four processes and on two does what one does, also in a run that was begun on another number."""

import pytest
import torch

from tests.trainers.distributed.launch import on_ranks
from tests.trainers.distributed.several import RUNS, kept
from tests.trainers.distributed.test_training import CLOSE, SAME, check
from tests.trainers.distributed.training import measure

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.once]

MODULE = "tests.trainers.distributed.several"


def ended(out, ranks):
    """What the runs ended with, which is the same on all ranks."""
    first, *others = (torch.load(out / f"rank-{rank}.pt") for rank in range(ranks))
    for other in others:
        for run in first:
            check(other[run], first[run], SAME, run)
    return first


def test_four_processes_train_as_one_and_runs_go_on_on_another_number(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHES", "4")
    path = checkpoint("qwen2_5_vl")
    alone = measure(path, tmp_path / "alone", **RUNS)
    on_ranks(4, MODULE, path, tmp_path)
    four = ended(tmp_path, 4)
    for run in ("group", "silent", "preferred", "taught", "kept"):
        check(four[run], alone[run], CLOSE, run)
    # Three rows are less than four ranks take: `accelerate` lets the last rank have one of them again.
    assert all(torch.isfinite(weight).all() for weight in four["one_row_less"]["weights"].values())
    # Begun on four processes, ended on two; begun on one, ended on two.
    for number, (begun, expected) in enumerate([(tmp_path, four), (tmp_path / "alone", alone)]):
        out = tmp_path / f"resumed{number}"
        out.mkdir()
        on_ranks(2, MODULE, path, out, begun / kept.__name__ / "checkpoint-2")
        check(ended(out, 2)["kept"], expected["kept"], CLOSE, "resumed")
