"""Two ranks with a store each: the second fetches what the first encoded, and the run is the same."""

import pytest
import torch
from datasets import Dataset

from tests.trainers.ids_runs import prompts
from tests.trainers.runs import woman

from .launch import on_two_ranks

pytestmark = [pytest.mark.trl, pytest.mark.slow]


def test_images_by_an_origin_train_as_those_of_one_store_to_the_last_bit(checkpoint, tmp_path):
    for name in ("shared", "apart"):
        Dataset.from_list(prompts(woman())[:2]).save_to_disk(tmp_path / f"rows-{name}")
    on_two_ranks("tests.trainers.distributed.nodes", checkpoint("qwen2_5_vl"), tmp_path)
    ranks = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in (0, 1)]
    for found in ranks:
        assert found["apart"]["logs"] == found["shared"]["logs"]
        assert len(found["shared"]["logs"]) == 2
        assert all(norm > 1e-3 for _, norm, _ in found["shared"]["logs"])
        for name, value in found["shared"]["weights"].items():
            assert torch.equal(found["apart"]["weights"][name], value), name
    first, second = (found["apart"] for found in ranks)
    assert len([file for file in first["before"] if file.endswith(".png")]) == 3
    assert second["before"] == []  # `datasets` gave it the rows of the first
    assert set(second["after"]) & set(first["before"])
