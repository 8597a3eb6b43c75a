"""LoRA on mixtures of experts and on hybrid decoders: what is adapted, and what is said not to be."""

import re
import warnings

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import nn

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.families.tiny import auto_class
from hf_vlm_rl.policy.trained.experts import fused_experts, routers
from tests.loading.adapters.models import encoded, logits
from tests.mixtures import DECODERS, MIXTURES
from tests.tiny import recipe

# Two layers, one adapter each: differences of a merge are rounding of weights of about one.
MERGED = 1e-3


def inside(policy, name: str) -> str:
    """A name as in `DECODERS`. The decoder's path may hold a whole language model, with its head."""
    return name.removeprefix(f"{policy.family.language}.").removeprefix("model.")


def adapted(policy) -> set[str]:
    """Layers and parameters of the decoder that an adapter is on, and all else that one is on by its path."""
    names = set()
    for name, module in policy.named_modules():
        if hasattr(module, "lora_A"):
            own = getattr(module, "parameter_name", None)
            name = name.replace(".base_layer", "")
            names.add(name if own in (None, "weight") else f"{name}.{own}")
    return {inside(policy, name) for name in names}


@torch.no_grad()
def stock_logits(model, processor) -> torch.Tensor:
    """As `logits`, in float32: Llama 4's processor makes pixels in bfloat16."""
    batch = {
        key: value.float() if value.is_floating_point() else value
        for key, value in encoded(processor).items()
    }
    return model.eval()(**batch).logits


CASES = [(model_type, experts) for model_type in DECODERS for experts in (False, True)]
CASES = [case for case in CASES if case[0] in MIXTURES or not case[1]]


@pytest.mark.parametrize(("model_type", "experts"), CASES)
def test_an_adapter_is_where_it_is_said_to_be_and_loads_on_the_stock_model(
    model_type, experts, policy_for, bare_for, native_processor_for, checkpoint, tmp_path
):
    policy, decoder = policy_for(model_type), DECODERS[model_type]
    config = policy.lora_config(r=2, experts=experts, init_lora_weights=False)
    model = get_peft_model(policy, config)
    assert adapted(policy) == decoder.layers | (decoder.experts if experts else set())
    model.train()(**encoded(policy.processing_class)).logits.log_softmax(-1)[:, ::3].mean().backward()
    trained = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    assert len(trained) == 2 * len(adapted(policy))
    assert [name for name, grad in trained.items() if grad is None or not grad.any()] == []

    model.save_pretrained(tmp_path)
    native = native_processor_for(model_type)
    stock = stock_logits(PeftModel.from_pretrained(bare_for(model_type), tmp_path), native)
    assert (stock - stock_logits(bare_for(model_type), native)).abs().max() > 0.1
    torch.testing.assert_close(logits(model, policy.processing_class), stock, atol=1e-5, rtol=0)
    for merge, tolerance in ((False, 1e-5), (True, MERGED)):
        loaded = AutoVLMPolicy.from_pretrained(
            tmp_path, base_model=checkpoint(model_type), dtype="float32", merge=merge
        )
        assert isinstance(loaded, PeftModel) != merge
        torch.testing.assert_close(logits(loaded, loaded.processing_class), stock, atol=tolerance, rtol=0)


@pytest.mark.parametrize("model_type", MIXTURES)
def test_experts_without_an_adapter_are_named_unless_that_is_meant(model_type, policy_for):
    policy, decoder = policy_for(model_type), DECODERS[model_type]
    weights = {inside(policy, name): weight for name, weight in policy.named_parameters()}
    number = sum(weights[name].numel() for name in decoder.experts)
    with pytest.warns(UserWarning, match="get no adapter") as caught:
        policy.lora_config()
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith(f"{number:,} weights of experts, in {len(decoder.experts)} fused parameters (")
    kinds = {re.sub(r"\.\d\.", ".*.", name) for name in decoder.experts}
    assert all(kind in message for kind in kinds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.lora_config(experts=False)
        policy.lora_config(experts=True)
        policy.lora_config(target_parameters=["experts.gate_up_proj", "experts.down_proj"])


def test_experts_that_are_adapted_in_part_are_named(policy_for):
    with pytest.warns(UserWarning, match=r"in 3 fused parameters \(\S+experts\.down_proj\), get no adapter"):
        policy_for("qwen3_vl_moe").lora_config(target_parameters=["mlp.experts.gate_up_proj"])


def test_a_list_of_names_that_passes_over_experts_is_no_exception(policy_for):
    with pytest.warns(UserWarning, match="weights of experts"):
        policy_for("qwen3_vl_moe").lora_config(target=["q_proj", "gate_proj", "up_proj", "down_proj"])


def test_there_must_be_experts_to_adapt(policy_for):
    with pytest.raises(ValueError, match=r"decoder of Qwen3_5ForConditionalGeneration has no fused experts"):
        policy_for("qwen3_5").lora_config(experts=True)


def test_a_second_adapter_finds_the_same(policy_for):
    policy = policy_for("qwen3_vl_moe")
    config = policy.lora_config(r=2, experts=True)
    get_peft_model(policy, config)
    again = policy.lora_config(r=2, experts=True)
    assert again.target_modules == config.target_modules
    assert again.target_parameters == config.target_parameters


# PEFT takes an adapter for one of transformers 4 by the names of its targets. GLM's dense layers and shared
# experts have those of its experts then.


@pytest.mark.parametrize(
    "option", [{"lora_dropout": 0.1}, {"use_dora": True}], ids=lambda option: next(iter(option))
)
def test_layers_that_peft_takes_for_experts_are_named_where_they_cannot_be_adapted(option, policy_for):
    policy = policy_for("glm4v_moe")
    with pytest.warns(
        UserWarning, match=r"6 linear layers \(\S+layers\.\*\.mlp\.gate_proj, .* get no adapter"
    ):
        config = policy.lora_config(r=2, experts=False, **option)
    get_peft_model(policy, config)
    assert adapted(policy) == {name for name in DECODERS["glm4v_moe"].layers if "self_attn" in name}


def test_names_that_peft_takes_for_experts_are_named(policy_for):
    names = ["gate_proj", "up_proj", "down_proj"]
    policy = policy_for("glm4v_moe")
    with pytest.warns(UserWarning, match="adapts down_proj and gate_up_proj in their place"):
        config = policy.lora_config(target=names)
    get_peft_model(policy, config)
    assert adapted(policy) == DECODERS["glm4v_moe"].experts


def stock_on_meta(model_type):
    config = recipe(model_type).config
    with torch.device("meta"):
        return auto_class(config).from_config(config)


def test_routers_are_found_among_linear_layers():
    """Llama 4's is one; PEFT would break on it, as it gives scores and logits."""
    model = stock_on_meta("llama4")
    layers = [f"language_model.model.layers.{number}.feed_forward" for number in (0, 1)]
    assert routers(model, "language_model.model") == {f"{layer}.router" for layer in layers}
    assert all(isinstance(model.get_submodule(f"{layer}.router"), nn.Linear) for layer in layers)
    assert set(fused_experts(model, "language_model.model")) == {
        f"{layer}.experts.{name}" for layer in layers for name in ("gate_up_proj", "down_proj")
    }


def test_experts_for_text_and_for_images_are_both_found():
    found = fused_experts(stock_on_meta("ernie4_5_vl_moe"), "model.language_model")
    block = "model.language_model.layers.1.mlp"
    assert set(found) == {
        f"{block}.{kind}.experts.{name}"
        for kind in ("text_moe", "vision_moe")
        for name in ("gate_up_proj", "down_proj")
    }
