"""Adapters that begin as a part of the base's weights: without them the model is not its base."""

import pytest
import torch
from peft import get_peft_model

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.evaluation import evaluate
from hf_vlm_rl.evaluation.side_by_side import side_by_side

ROWS = [{"prompt": [{"role": "user", "content": "Hello."}]}]


def nothing(completions, **_):
    return [0.0] * len(completions)


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_4", "olora"])
@pytest.mark.parametrize("loaded", [False, True])
def test_they_are_not_compared_with_a_base_that_is_none(start, loaded, policy_for, tmp_path):
    policy = policy_for("internvl")
    torch.manual_seed(0)
    model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=start))
    if loaded:
        model.save_pretrained(tmp_path)
        model = AutoVLMPolicy.from_pretrained(tmp_path, dtype="float32")
    evaluate(model, ROWS, nothing, max_new_tokens=1)
    with (
        model.disable_adapter(),
        pytest.raises(ValueError, match=f"init_lora_weights='{start}'.*base by itself"),
    ):
        evaluate(model, ROWS, nothing, max_new_tokens=1)
    with pytest.raises(ValueError, match=f"init_lora_weights='{start}'"):
        side_by_side(model, "Hello?", max_new_tokens=1)


@pytest.mark.parametrize("start", [True, False, "gaussian", "orthogonal"])
def test_others_are(start, policy_for):
    policy = policy_for("internvl")
    model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=start))
    with model.disable_adapter():
        evaluate(model, ROWS, nothing, max_new_tokens=1)
    side_by_side(model, "Hello?", max_new_tokens=1)
