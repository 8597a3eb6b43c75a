"""A trainer that resumes, or loads its best model, hands over weights by the names that are in files."""

import pytest
import torch

from hf_vlm_rl import AutoVLMPolicy, CheckpointError

from .every import CLAIMED
from .saved import assert_same_weights, saved_with_other_weights

# `save_pretrained` cuts or joins some of their weights, of experts for one.
CONVERTED = (
    *("deepseek_ocr2", "dots3_note", "ernie4_5_vl_moe", "glm4v_moe", "glm5_next", "inkling2"),
    *("inkling_mm_model", "kimi_k25", "minimax_m3_vl", "mistral_large4", "molmo2", "nemotron_h_omni"),
    *("qianfan_ocr", "qwen3_5_moe", "qwen3_omni_moe_thinker", "qwen4_exp", "step3p7", "unlimited_ocr"),
)


@pytest.mark.parametrize("model_type", CLAIMED)
def test_a_policy_that_exists_takes_what_was_saved(model_type, checkpoint, tmp_path):
    saved, weights = saved_with_other_weights(AutoVLMPolicy, checkpoint(model_type), tmp_path)
    policy = AutoVLMPolicy.from_pretrained(checkpoint(model_type), dtype="float32")
    if model_type in CONVERTED:
        with pytest.raises(
            CheckpointError, match=r"has cut or joined them\. Make the trainer with the policy"
        ):
            policy.load_state_dict(weights, strict=False)
        policy = AutoVLMPolicy.from_pretrained(tmp_path, dtype="float32")
    result = policy.load_state_dict(weights, strict=False)
    assert result.unexpected_keys == []
    assert_same_weights(policy, saved)


def test_names_that_nobody_writes_are_left_to_stock(checkpoint):
    policy = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), dtype="float32")
    result = policy.load_state_dict({"other.weight": torch.ones(1)}, strict=False)
    assert result.unexpected_keys == ["other.weight"]
    with pytest.raises(RuntimeError, match=r"Unexpected key.*other\.weight"):
        policy.load_state_dict({"other.weight": torch.ones(1)})
