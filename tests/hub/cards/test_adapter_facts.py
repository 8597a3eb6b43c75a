"""What a card says of the adapter is read from the saved files."""

import pytest
from peft import IA3Config, LoraConfig, get_peft_model

from hf_vlm_rl.hub.cards.adapter_facts import adapter_facts

CASES = {
    "decoder": (
        lambda policy: policy.lora_config(r=4, use_dora=True),
        {"vision tower": "frozen", "projector": "frozen", "decoder": "adapter"},
    ),
    "everything": (
        lambda policy: policy.lora_config(r=4, target="all"),
        {"vision tower": "adapter", "projector": "adapter", "decoder": "adapter"},
    ),
    "whole projector": (
        lambda policy: policy.lora_config(r=4, modules_to_save=["projector"]),
        {"vision tower": "frozen", "projector": "in full", "decoder": "adapter"},
    ),
    "another method": (
        lambda policy: IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
        {"vision tower": "adapter", "projector": "frozen", "decoder": "adapter"},
    ),
}


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl", "llava_next"])
@pytest.mark.parametrize(("make", "expected"), CASES.values(), ids=CASES)
def test_the_parts_are_trained_as_the_saved_tensors_say(
    make, expected, family, policy_for, bare_for, tmp_path
):
    policy = policy_for(family)
    model = get_peft_model(policy, make(policy))
    model.save_pretrained(tmp_path)
    facts = adapter_facts(tmp_path, model)
    assert {part.name: part.trained for part in facts.parts} == expected
    bare = bare_for(family)
    assert facts.total == sum(parameter.numel() for parameter in bare.parameters())
    assert sum(part.parameters for part in facts.parts) == facts.total
    saved = sum(p.numel() for name, p in model.named_parameters() if p.requires_grad)
    assert facts.parameters == saved


def test_settings_and_layers_are_those_of_the_config(policy_for, tmp_path):
    policy = policy_for("internvl")
    config = LoraConfig(
        r=2, lora_alpha=3, lora_dropout=0.1, use_rslora=True, target_modules=r".*language.*q_proj"
    )
    get_peft_model(policy, config).save_pretrained(tmp_path)
    facts = adapter_facts(tmp_path)
    assert facts.settings == {"rank": 2, "alpha": 3, "dropout": 0.1, "rsLoRA": True}
    assert facts.targets == {"q_proj": 2}
    assert (facts.name, facts.total, facts.parts) == ("LoRA", None, ())


def test_experts_are_named_once_a_layer(policy_for, tmp_path):
    policy = policy_for("qwen3_vl_moe")
    model = get_peft_model(policy, policy.lora_config(r=2, experts=True))
    model.save_pretrained(tmp_path)
    facts = adapter_facts(tmp_path, model)
    assert facts.targets == {"experts": 3, "k_proj": 3, "o_proj": 3, "q_proj": 3, "v_proj": 3}
    assert facts.parameters == sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
