"""DDP, FSDP2 and ZeRO as `accelerate_configs` sets them up, on a CPU: two processes do what one does.

One test a launch: pytest's workers would otherwise launch the same ranks once each.
"""

from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from tests.documents.examples.conftest import SCRIPTS
from tests.trainers.distributed.launch import on_two_ranks
from tests.trainers.distributed.training import DDP, measure, preferred, taught, tower
from tests.trainers.runs import TWO

pytestmark = [pytest.mark.trl, pytest.mark.slow]

CONFIGS = SCRIPTS / "accelerate_configs"
# Found: 3e-6 in the logs (in a norm of 9.9), 1.2e-7 in weights that plain gradient descent moves by 1e-2.
CLOSE = {"logs": 2e-5, "weights": 1e-6}
SAME = {"logs": 0.0, "weights": 0.0}


def apart(found: dict, expected: dict) -> dict[str, float]:
    """The largest differences."""
    assert found["weights"].keys() == expected["weights"].keys()
    weights = [(found["weights"][name] - value).abs().max() for name, value in expected["weights"].items()]
    logs = torch.tensor(found["logs"]) - torch.tensor(expected["logs"])
    return {"logs": float(logs.abs().max()), "weights": float(max(weights))}


def check(found: dict, expected: dict, limits: dict[str, float], run: str) -> None:
    differences = apart(found, expected)
    assert all(differences[name] <= limit for name, limit in limits.items()), (run, differences)


def on_ranks(module: str, config: str, checkpoint: Path, out: Path) -> tuple[dict, dict]:
    on_two_ranks(module, checkpoint, out, config=CONFIGS / config)
    first, second = (torch.load(out / f"rank-{rank}.pt") for rank in (0, 1))
    for run in first:
        check(second[run], first[run], SAME, run)
    return first, second


@pytest.mark.parametrize("family", TWO)
def test_ddp_with_and_without_images_trains_as_one_process_and_resumes_exactly(family, checkpoint, tmp_path):
    ranks = on_ranks("tests.trainers.distributed.training", "ddp.yaml", checkpoint(family), tmp_path)
    alone = measure(checkpoint(family), tmp_path / "alone", **DDP)
    for run in ("group", "tower", "preferred", "taught"):
        assert all(norm > 0.1 for _, norm, *_ in alone[run]["logs"]), run
        check(ranks[0][run], alone[run], CLOSE, run)
    for run in ("sampled", "preferred"):
        for found in (*ranks, alone):
            check(found[f"{run} resumed"], found[run], SAME, run)


def test_fsdp2_with_and_without_images_trains_as_one_process_and_resumes_exactly(checkpoint, tmp_path):
    path = checkpoint("qwen2_5_vl")
    ranks = on_ranks("tests.trainers.distributed.fsdp", "fsdp2.yaml", path, tmp_path)
    # TRL 1.16 averages the gradient of the head with neither of its losses of SFT, for stock models, too.
    compared = [preferred, taught] if Version(version("trl")) < Version("1.13") else [preferred]
    alone = measure(path, tmp_path / "alone", compared, [])
    for run in alone:
        check(ranks[0][run], alone[run], CLOSE, run)
    for found in ranks:
        check(found["sampled resumed"], found["sampled"], SAME, "sampled")
        # The layers of tower and decoder, by the model's `_no_split_modules`.
        assert {"FSDPQwen2_5_VLVisionBlock", "FSDPQwen2_5_VLDecoderLayer"} <= set(found["taught"]["sharded"])


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("family", TWO)
def test_zero_with_and_without_images_trains_as_one_process_and_resumes_exactly(
    family, stage, checkpoint, tmp_path
):
    pytest.importorskip("deepspeed")  # not among the dependencies: for machines that have it
    ranks = on_ranks(
        "tests.trainers.distributed.zero", f"deepspeed_zero{stage}.yaml", checkpoint(family), tmp_path
    )
    alone = measure(checkpoint(family), tmp_path / "alone", [preferred, taught, tower], [])
    for run in alone:
        check(ranks[0][run], alone[run], CLOSE, run)
    for found in ranks:
        check(found["sampled resumed"], found["sampled"], SAME, "sampled")
