"""`multi_node_zero3.yaml` on two machines of one process, each with a working directory and a store."""

import pytest
import torch

from tests.documents.examples.conftest import SCRIPTS
from tests.trainers.distributed.launch import on_two_nodes
from tests.trainers.distributed.test_training import CLOSE, SAME, check
from tests.trainers.distributed.training import measure, taught

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.once]


def test_two_machines_with_a_store_each_train_as_one_process_and_resume(checkpoint, tmp_path):
    pytest.importorskip("deepspeed")  # not among the dependencies; `make zero` installs it
    path = checkpoint("qwen2_5_vl")
    config = SCRIPTS / "accelerate_configs" / "multi_node_zero3.yaml"
    nodes = [tmp_path / "first", tmp_path / "second"]
    on_two_nodes("tests.trainers.distributed.zero_nodes", path, tmp_path, config=config, nodes=nodes)
    first, second = (torch.load(tmp_path / f"rank-{rank}.pt") for rank in (0, 1))
    for run in first:
        check(second[run], first[run], SAME, run)
    check(first["taught"], measure(path, tmp_path / "alone", [taught], [])["taught"], CLOSE, "taught")
    check(first["sampled resumed"], first["sampled"], CLOSE, "sampled")  # found: 1.2e-7
