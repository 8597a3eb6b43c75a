"""PPO on two processes trains as one does, but for advantages that TRL whitens on each process by itself."""

import pytest
import torch

from tests.trainers.distributed.launch import on_two_ranks
from tests.trainers.distributed.test_training import CLOSE, SAME, apart, check

pytestmark = [pytest.mark.ppo, pytest.mark.slow, pytest.mark.once]


def test_two_processes_train_as_one_but_for_what_trl_whitens_on_each(checkpoint, tmp_path):
    from tests.trainers.distributed.proximal import measure

    path = checkpoint("internvl")
    on_two_ranks("tests.trainers.distributed.proximal", path, tmp_path)
    first, second = (torch.load(tmp_path / f"rank-{rank}.pt") for rank in (0, 1))
    alone = measure(path, tmp_path / "alone")
    for name in ("stock", "unwhitened"):
        check(second[name], first[name], SAME, name)
    check(first["unwhitened"], alone["unwhitened"], CLOSE, "unwhitened")
    # What is computed before the first whitened step is the same. If all is, TRL whitens over all processes,
    # and docs/cluster.md has a row to change.
    (begun, _), (expected, _) = first["stock"]["logs"], alone["stock"]["logs"]
    assert begun == pytest.approx(expected, abs=CLOSE["logs"])
    assert apart(first["stock"], alone["stock"])["weights"] > 1e-3
