"""ZeRO-3 with unequal images on two ranks: what one process computes, for each class or an error in words."""

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


def test_unequal_images_give_the_losses_and_gradients_of_one_process(checkpoint, tmp_path):
    pytest.importorskip("deepspeed")  # not among the dependencies; `make zero` installs it
    checkpoints = [checkpoint(name) for name in CLASSES]
    on_two_ranks("tests.trainers.distributed.zero_every", tmp_path, *checkpoints, timeout=900)
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    for name in CLASSES:
        for measured in (rank[name] for rank in ranks):
            if name in REFUSED:
                assert measured.startswith("Got batches with 0 to 2 images on different ranks"), name
            else:
                assert measured["loss"] < 1e-5, (name, measured)
                assert measured["gradient"] < 1e-5, (name, measured)


def test_every_class_named_here_is_claimed():
    assert {*REFUSED, *SOME} <= {*CLAIMED, *FAMILIES}
