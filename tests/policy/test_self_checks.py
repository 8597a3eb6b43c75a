"""Checks of a decoder before its first use look at ordinary words."""

import copy

import pytest
import torch

from hf_vlm_rl.policy.sharing.attention_arguments import unknown_argument
from hf_vlm_rl.policy.sharing.kernel import PackedAttention
from hf_vlm_rl.policy.sharing.prefill_check import (
    disagreement,
    draft_disagreement,
    shared_draft_disagreement,
    step_disagreement,
)
from hf_vlm_rl.policy.sharing.prefix_cache import OtherAttention, prefix_cache_attention
from hf_vlm_rl.policy.sharing.self_check import disagreement as sharing_disagreement
from hf_vlm_rl.policy.sharing.switch import IN_ONE_ROW, ON_A_CACHE
from hf_vlm_rl.policy.sharing.tolerance import ordinary_ids

CHECKS = {
    "step": step_disagreement,
    "shared cache": disagreement,
    "draft": draft_disagreement,
    "draft on a shared cache": shared_draft_disagreement,
    "packed": lambda decoder: sharing_disagreement(decoder, IN_ONE_ROW, PackedAttention("auto")),
    "cached": lambda decoder: sharing_disagreement(decoder, ON_A_CACHE, PackedAttention("auto")),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_special_tokens_do_not_decide(check, policy_for):
    decoder = copy.deepcopy(policy_for("internvl").base_model.decoder)
    weight = decoder.get_input_embeddings().weight
    with torch.no_grad():
        weight[: len(weight) // 4] = weight[-(len(weight) // 4) :] = float("nan")
    assert check(decoder) is None


@pytest.mark.parametrize("count", [1, 6, 50])
def test_ordinary_ids_differ_and_lie_in_the_middle(count, policy_for):
    decoder = policy_for("internvl").base_model.decoder
    words = len(decoder.get_input_embeddings().weight)
    ids = ordinary_ids(decoder, count).tolist()
    assert len(set(ids)) == count
    assert words // 4 <= min(ids) <= max(ids) < words - words // 4


def test_arguments_that_may_change_weights_are_named():
    harmless = {"sliding_window": 4, "is_causal": True, "position_bias": None, "logits_to_keep": 2}
    assert unknown_argument(harmless) is None
    assert unknown_argument(harmless | {"position_bias": torch.zeros(1)}) == "position_bias"
    tensors = [torch.zeros(1, 1, 1, 16)] * 3
    with pytest.raises(OtherAttention, match="attention takes indices"):
        prefix_cache_attention(torch.nn.Identity(), *tensors, None, prefix_layer=None, indices=tensors[0])
