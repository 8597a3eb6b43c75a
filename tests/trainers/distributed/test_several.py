"""DDP on four processes and on two does what one does, also in a run that was begun on another number."""

import pytest
import torch

from tests.trainers.distributed.launch import on_ranks
from tests.trainers.distributed.several import named
from tests.trainers.distributed.test_training import CLOSE, SAME, check
from tests.trainers.distributed.training import measure

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.once]

COMPARED = ("group", "silent", "preferred", "taught", "kept")


def ended(out, ranks):
    """What the runs ended with, which is the same on all ranks."""
    first, *others = (torch.load(out / f"rank-{rank}.pt") for rank in range(ranks))
    for other in others:
        for run in first:
            check(other[run], first[run], SAME, run)
    return first


def check_all(found, expected, runs):
    for run in runs:
        check(found[run], expected[run], CLOSE, run)
        assert found[run]["state"] == expected[run]["state"], run  # step, epoch, learning rate


def test_four_processes_train_as_one_and_runs_go_on_on_another_number(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHES", "4")
    path = checkpoint("qwen2_5_vl")

    def begun(name):
        monkeypatch.setenv("BEGUN", str(tmp_path / name / "kept" / "checkpoint-2"))

    def on(number, name, *runs):
        (tmp_path / name).mkdir()
        on_ranks(number, "tests.trainers.distributed.several", path, tmp_path / name, *runs)
        return ended(tmp_path / name, number)

    odd = ("odd_preferred", "odd_taught")
    alone = measure(path, tmp_path / "one", **named(*COMPARED, *odd))
    assert all(len(run["logs"]) == run["state"][0] for run in alone.values())

    begun("one")
    two = on(2, "two", "kept", "went_on", *odd)
    check_all(two, alone, ("kept", *odd))
    check_all({"kept": two["went_on"]}, alone, ["kept"])  # 1 to 2

    begun("two")
    four = on(4, "four", *COMPARED, "went_on", "one_row_less")
    check_all(four, alone, COMPARED)
    check_all({"kept": four["went_on"]}, alone, ["kept"])  # 2 to 4
    # Three rows are less than four ranks take: `accelerate` lets the last rank have one of them again.
    assert all(torch.isfinite(weight).all() for weight in four["one_row_less"]["weights"].values())
    to_one = measure(path, tmp_path / "to-one", **named("went_on"))
    check_all({"kept": to_one["went_on"]}, alone, ["kept"])  # 2 to 1

    begun("four")
    check_all({"kept": on(2, "to-two", "went_on")["went_on"]}, alone, ["kept"])  # 4 to 2
