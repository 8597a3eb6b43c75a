"""ZeRO-3 and FSDP2 with unequal images on two ranks: what one process computes, or an error in words."""

import json
import os

import pytest

from hf_vlm_rl.families import FAMILIES
from hf_vlm_rl.families.table import EQUAL_RANKS
from tests.conformance.every import CLAIMED

from .launch import on_two_ranks

pytestmark = [pytest.mark.trl, pytest.mark.slow]

# Stock calls their towers once or more for each image, on tensors of the whole batch, or other modules only
# where a rank has images.
REFUSED = ("emu3", "fast_vlm", "gemma3n", "mllama", "phi4_multimodal", *sorted(EQUAL_RANKS))
# Projectors that run once for each piece, backbones that return logits, experts, hybrids, tiles.
SOME = (
    *("lfm2_vl", "lfm3_vl", "paddleocr_vl", "hunyuan_vl", "nemotron_h_omni", "qwen3_5_moe", "smolvlm"),
    *("internvl", "qwen2_5_vl", "llava_next", "gemma3", "minicpmv4_6", "molmo2", "fast_vlm"),
    *("ernie4_5_vl_moe", "qwen4_exp", "step3p7", "unlimited_ocr"),
)
CLASSES = CLAIMED if "HF_VLM_RL_CLASSES" in os.environ else SOME


def differences(way, checkpoint, tmp_path):
    """For each class: what both ranks measured, a dict or an error in words."""
    checkpoints = [checkpoint(name) for name in CLASSES]
    on_two_ranks("tests.trainers.distributed.spread_every", way, tmp_path, *checkpoints, timeout=900)
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    return {name: [rank[name] for rank in ranks] for name in CLASSES}


def check(measured):
    for name, ranks in measured.items():
        for of_rank in ranks:
            if name in REFUSED:
                assert of_rank.startswith("Got batches with 0 to 2 images on different ranks"), name
            else:
                assert of_rank["loss"] < 1e-5, (name, of_rank)
                assert of_rank["gradient"] < 1e-5, (name, of_rank)


def test_zero3_with_unequal_images_is_one_process(checkpoint, tmp_path):
    pytest.importorskip("deepspeed")  # not among the dependencies; `make zero` installs it
    check(differences("zero3", checkpoint, tmp_path))


def test_fsdp2_with_unequal_images_is_one_process(checkpoint, tmp_path):
    check(differences("fsdp2", checkpoint, tmp_path))


def test_every_class_named_here_is_claimed():
    assert {*REFUSED, *SOME} <= {*CLAIMED, *FAMILIES}
