"""Clauses 8, 10 and 11: saving, copying, wrapping and checkpointing a policy."""

import copy

import pytest
import torch
from peft import PeftModel, get_peft_model
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy

from .cases import ALL, native, one_image, tickets, two_images

# Of the largest logit, in float32.
RTOL = 2e-5


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def assert_equal(found, expected, rtol=RTOL):
    torch.testing.assert_close(found, expected, rtol=0, atol=rtol * expected.abs().max().item())


@pytest.mark.parametrize("family", ALL)
def test_a_saved_policy_is_the_bare_model_and_loads_as_either(family, policy_for, bare_for, tmp_path):
    policy, bare = policy_for(family), bare_for(family)
    assert list(policy.state_dict()) == list(bare.state_dict())
    policy.save_pretrained(tmp_path / "policy")
    bare.save_pretrained(tmp_path / "bare")
    for name in ("config.json", "model.safetensors"):
        ours, stock = (tmp_path / folder / name for folder in ("policy", "bare"))
        assert ours.read_bytes() == stock.read_bytes()
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "policy")
    assert type(loaded) is type(bare)

    policy.processing_class.save_pretrained(tmp_path / "policy")
    again = AutoVLMPolicy.from_pretrained(tmp_path / "policy").eval()
    processor = AutoProcessor.from_pretrained(tmp_path / "policy")
    assert type(processor) is policy.processing_class._stock_class
    batch = tickets(policy.processing_class, [one_image()])
    assert torch.equal(logits(again, batch), logits(policy, batch))
    stock = native(processor, [one_image()])
    assert_equal(logits(loaded.eval(), stock), logits(policy, batch))


@pytest.mark.parametrize("family", ALL)
def test_an_adapter_moves_between_policy_and_bare_model(
    family, policy_for, bare_for, native_processor_for, tmp_path
):
    policy, bare = policy_for(family), bare_for(family)
    config = policy.lora_config(r=4)
    batch = tickets(policy.processing_class, [two_images()])
    stock = native(native_processor_for(family), [two_images()])
    before = logits(policy, batch)

    trained = get_peft_model(policy, config).eval()
    for name, parameter in trained.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    trained.save_pretrained(tmp_path / "ours")
    expected = logits(trained, batch)
    assert (expected - before).abs().max() > 1e-2

    on_bare = PeftModel.from_pretrained(bare, tmp_path / "ours").eval()
    assert_equal(logits(on_bare, stock), expected)
    on_bare.save_pretrained(tmp_path / "theirs")
    back = PeftModel.from_pretrained(policy_for(family), tmp_path / "theirs").eval()
    assert_equal(logits(back, batch), expected)

    merged = back.merge_and_unload()
    assert_equal(logits(merged, batch), expected)


@pytest.mark.parametrize("family", ALL)
def test_copies_compute_the_same_and_share_nothing_but_the_images(family, policy_for):
    policy = policy_for(family)
    batch = tickets(policy.processing_class, [one_image()])
    twin = copy.deepcopy(policy)
    assert type(twin) is type(policy)
    assert twin.processing_class is policy.processing_class
    assert torch.equal(logits(twin, batch), logits(policy, batch))
    with torch.no_grad():
        next(iter(twin.get_submodule(policy.family.vision[0]).parameters())).add_(1.0)
    assert not torch.equal(logits(twin, batch), logits(policy, batch))


@pytest.mark.parametrize("family", ALL)
def test_wrapping_a_policy_again_changes_nothing(family, policy_for):
    policy = policy_for(family)
    kind, backbone = type(policy), type(policy.base_model)
    again = AutoVLMPolicy.from_model(policy, policy.processing_class)
    assert again is policy
    assert (type(policy), type(policy.base_model)) == (kind, backbone)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("family", ALL)
def test_gradient_checkpointing_changes_no_value_and_no_gradient(family, reentrant, policy_for):
    def gradients(checkpointing):
        policy = policy_for(family)
        policy.freeze()
        torch.manual_seed(0)
        policy = get_peft_model(policy, policy.lora_config(r=4)).train()
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.3)
        if checkpointing:
            policy.gradient_checkpointing_enable({"use_reentrant": reentrant})
            policy.enable_input_require_grads()
        batch = tickets(policy.get_base_model().processing_class, [one_image(), two_images()])
        loss = policy(**batch, use_cache=False).logits[:, -4:].square().mean()
        loss.backward()
        found = {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}
        return loss.detach(), found

    plain_loss, plain = gradients(False)
    loss, found = gradients(True)
    assert_equal(loss, plain_loss, 1e-6)
    assert set(found) == set(plain)
    assert plain
    for name, gradient in plain.items():
        assert_equal(found[name], gradient, 1e-5)
