"""Which modules get adapters, in every family."""

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import nn

from hf_vlm_rl.families.tiny import FAMILIES

from ..loading.adapters.models import encoded, logits

# Linear layers of the tiny models: in two decoder layers or three, in the projector, in the tower.
LAYERS = {
    "internvl": (14, 2, 12),
    "qwen2_vl": (14, 2, 8),
    "qwen2_5_vl": (14, 2, 10),
    "qwen3_vl": (21, 6, 8),
    "gemma3": (14, 0, 12),
    "llava": (14, 2, 12),
    "llava_next": (14, 2, 12),
    "llava_onevision": (14, 2, 12),
    "idefics3": (14, 1, 12),
    "smolvlm": (14, 1, 12),
    "mistral3": (14, 3, 14),
    "paligemma": (14, 1, 12),
}


def adapted(model) -> list[str]:
    """Names of the layers with an adapter."""
    return [name for name, module in model.named_modules() if hasattr(module, "lora_A")]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_target_reaches_its_part_and_no_other(family, policy_for):
    decoder, projector, tower = LAYERS[family]
    expected = {"language": decoder, "all": decoder + projector + tower}
    if projector:
        expected["language+projector"] = decoder + projector
    for target, number in expected.items():
        policy = policy_for(family)
        names = adapted(get_peft_model(policy, policy.lora_config(r=2, target=target)).get_base_model())
        assert len(names) == number, target
        inside = [name for name in names if name.startswith(policy.family.language + ".")]
        assert len(inside) == decoder
        assert not any("embed" in name or "lm_head" in name for name in names)


def test_a_bare_name_hits_the_tower_as_well(policy_for):
    """Why the named parts exist."""
    policy = policy_for("internvl")
    names = adapted(get_peft_model(policy, policy.lora_config(target=["q_proj"])).get_base_model())
    assert {name.split(".")[1] for name in names} == {"vision_tower", "language_model"}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_projector_can_be_trained_whole_and_loads_on_the_bare_model(
    family, policy_for, bare_for, native_processor_for, tmp_path
):
    policy = policy_for(family)
    model = get_peft_model(policy, policy.lora_config(r=2, modules_to_save=["projector"]))
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    own = {
        name
        for name, _ in bare_for(family).named_parameters()
        if name.startswith(tuple(path + "." for path in policy.family.projector))
    }
    assert own
    whole = {name.replace(".modules_to_save.default", "") for name in trained if "lora_" not in name}
    assert whole == {f"base_model.model.{name}" for name in own}
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.1)
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(bare_for(family), tmp_path)
    native = native_processor_for(family)
    expected = logits(loaded, native)
    assert torch.allclose(logits(model, policy.processing_class), expected, atol=1e-5)
    assert (expected - logits(bare_for(family), native)).abs().max() > 1e-3


def test_other_modules_to_save_stay_as_given(policy_for):
    policy = policy_for("internvl")
    assert policy.lora_config(modules_to_save=["lm_head"]).modules_to_save == ["lm_head"]
    both = policy.lora_config(modules_to_save=["lm_head", "projector"]).modules_to_save
    assert both == ["lm_head", "model.multi_modal_projector"]


def test_a_projector_trained_whole_and_by_adapters_is_refused(policy_for):
    with pytest.raises(ValueError, match=r"inside it \(model\.multi_modal_projector\.linear_1, \.\.\.\)"):
        policy_for("internvl").lora_config(target="all", modules_to_save=["projector"])


@pytest.mark.parametrize("options", [{"use_dora": True}, {"use_rslora": True}], ids=lambda o: next(iter(o)))
@pytest.mark.parametrize("family", FAMILIES)
def test_dora_and_rslora_pass_through_and_have_gradients(family, options, policy_for):
    torch.manual_seed(0)
    policy = policy_for(family)
    model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False, **options))
    layer = next(module for module in model.modules() if hasattr(module, "lora_A"))
    assert layer.scaling["default"] == (8 / 4**0.5 if "use_rslora" in options else 2)
    assert bool(layer.lora_magnitude_vector) == ("use_dora" in options)
    model(**encoded(policy.processing_class)).logits.log_softmax(-1)[:, ::3].mean().backward()
    trained = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    assert len(trained) == LAYERS[family][0] * (3 if "use_dora" in options else 2)
    assert all(grad is not None and grad.abs().max() > 0 for grad in trained.values())


def test_a_projector_without_linear_layers_is_named(policy_for):
    """Gemma 3 projects by a parameter."""
    policy = policy_for("gemma3")
    with pytest.raises(ValueError, match=r'no linear layer .* modules_to_save=\["projector"\]'):
        policy.lora_config(target="language+projector")


def test_layers_that_attention_only_reads_are_no_targets(policy_for):
    """torch's attention reads the weights of its `out_proj` and never calls it, nor an adapter on it."""
    policy = policy_for("aria")
    config = policy.lora_config(r=2, target="language+projector", experts=True, init_lora_weights=False)
    attention = policy.get_submodule("model.multi_modal_projector.cross_attn.multihead_attn")
    assert isinstance(attention, nn.MultiheadAttention)
    model = get_peft_model(policy, config)
    model(**encoded(policy.processing_class)).logits.log_softmax(-1)[:, ::3].mean().backward()
    trained = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    assert any("multi_modal_projector" in name for name in trained)
    assert [name for name, grad in trained.items() if grad is None or not grad.any()] == []
