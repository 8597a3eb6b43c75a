"""Checkpoints are loaded while training arguments with a ZeRO-3 configuration exist, as in every script."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from transformers.integrations.deepspeed import (
    is_deepspeed_zero3_enabled,
    set_hf_deepspeed_config,
    unset_hf_deepspeed_config,
)

from hf_vlm_rl.loading.checkpoint import read_checkpoint
from hf_vlm_rl.loading.meta import policy_on_meta
from hf_vlm_rl.loading.stock import skeleton
from hf_vlm_rl.processing.images.store import ImageStore

FAMILIES = ["internvl", "qwen2_5_vl", "llava", "idefics3"]


class Stage3:
    """What transformers asks of `HfDeepSpeedConfig`, which cannot be made without the package."""

    config = {"train_batch_size": 1, "zero_optimization": {"stage": 3}}  # noqa: RUF012

    def is_zero3(self) -> bool:
        return True


@contextmanager
def zero3():
    """transformers is told of ZeRO-3, as training arguments tell it."""
    configuration = Stage3()  # transformers keeps a weak reference
    set_hf_deepspeed_config(configuration)
    try:
        yield configuration
    finally:
        unset_hf_deepspeed_config()


@pytest.mark.parametrize("family", FAMILIES)
def test_models_without_weights_are_made_whole_where_zero3_divides_models(family, checkpoint):
    read = read_checkpoint(str(checkpoint(family)))
    with zero3():
        policy = policy_on_meta(read, torch.float32, ImageStore())
        for model in (skeleton(read.config), policy):
            assert all(weight.is_meta and weight.numel() for weight in model.parameters())
        assert is_deepspeed_zero3_enabled()  # the next model with weights is divided again


LOADED = """
import os, sys, torch
os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1"}
import deepspeed
from transformers import AutoModelForImageTextToText
from transformers.integrations import HfDeepSpeedConfig
from hf_vlm_rl import AutoVLMPolicy
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
arguments = HfDeepSpeedConfig({"train_batch_size": 1, "zero_optimization": {"stage": 3}})
def weights(model):
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return {name: weight.detach().clone() for name, weight in model.named_parameters()}
for path in sys.argv[2:]:
    policy = AutoVLMPolicy.from_pretrained(path, dtype="float32")
    assert all(hasattr(weight, "ds_id") for weight in policy.parameters())
    own, stock = weights(policy), weights(AutoModelForImageTextToText.from_pretrained(path, dtype="float32"))
    assert own.keys() == stock.keys()
    assert all(torch.equal(own[name], stock[name]) for name in stock)
"""


def test_policies_under_zero3_have_stocks_weights(checkpoint, tmp_path):
    pytest.importorskip("deepspeed")  # not among the dependencies: for machines that have it
    paths = [str(checkpoint(family)) for family in FAMILIES]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path / "rendezvous"), *paths],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
