"""Two ranks whose job is ended, and of which one is lost: both runs go on, and end as one that was let be."""

import json

import pytest
import torch

from tests.trainers.distributed.launch import on_ranks
from tests.trainers.distributed.test_training import CLOSE, SAME, check

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.once]

MODULE = "tests.trainers.distributed.interrupted"
WHOLE = {"adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"}


def test_a_run_goes_on_to_the_same_weights_after_sigterm_and_after_a_lost_rank(checkpoint, tmp_path):
    path = checkpoint("qwen2_5_vl")
    # torchrun passes the signal on and waits; its own status tells that it was ended.
    on_ranks(2, MODULE, "ended", path, tmp_path, options=["--shutdown-timeout", "120"], status=1)
    saved = tmp_path / "ended" / "checkpoint-2"
    files = {file.name for file in saved.iterdir()}
    assert files >= WHOLE
    assert "checkpoint-is-incomplete.txt" not in files
    assert json.loads((saved / "trainer_state.json").read_text())["global_step"] == 2

    on_ranks(2, MODULE, "lost", path, tmp_path, options=["--max-restarts", "1"])

    def found(run, rank):
        return torch.load(tmp_path / f"{run}-{rank}.pt")

    for rank in (0, 1):
        expected = found("trained", rank)
        assert found("ended", rank)["state"][0] == 3  # its last one is not in the checkpoint
        assert expected["state"][0] == 4
        # A step that is under way has drawn random numbers, which the checkpoint counts as drawn: TRL then
        # takes the rows of the third step in another order.
        for run, limits in (("went_on", CLOSE), ("lost", SAME)):
            check(found(run, rank), expected, limits, run)
            assert found(run, rank)["state"] == expected["state"]
