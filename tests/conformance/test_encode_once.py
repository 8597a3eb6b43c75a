"""Each distinct image goes through the vision tower once, for as long as nothing that it met changes."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from .cases import ALL, one_image, tickets, two_images

ATOL = 2e-5


@pytest.fixture
def counted(policy_for):
    """`counted(family)`: a policy with a frozen tower, and how many images its tower saw."""

    def make(family):
        policy = policy_for(family).requires_grad_(False)
        return policy, lambda: policy.sharing_report()["images_encoded"]

    return make


def logits(policy, batch):
    with torch.no_grad():
        return policy(**batch).logits


@pytest.mark.parametrize("family", ALL)
def test_a_frozen_tower_sees_an_image_once_and_gives_the_same(family, counted, policy_for):
    policy, encoded = counted(family)
    trained = policy_for(family)  # every weight trainable: nothing is kept
    rows = [one_image(), one_image(), two_images()]
    batch = tickets(policy.processing_class, rows)
    expected = logits(trained, batch)
    for _ in range(3):
        torch.testing.assert_close(logits(policy, batch), expected, atol=ATOL, rtol=0)
    assert policy.sharing_report()["images_reused"] == 3 * 4 - 3
    policy.generate(**batch, max_new_tokens=2)
    assert encoded() == 3
    for _ in range(2):
        logits(trained, batch)
    assert trained.sharing_report()["images_encoded"] == 3 * 3


def test_kept_features_equal_computed_ones_in_values_and_gradients(policy_for):
    def run(keep):
        policy = policy_for("qwen3_vl")
        policy.freeze()
        policy.base_model.feature_cache.limit_bytes *= keep
        batch = tickets(policy.processing_class, [one_image(), two_images()])
        logits(policy, batch)
        loss = policy(**batch).logits.square().mean()
        loss.backward()
        return loss, {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}

    (loss, kept), (plain_loss, plain) = run(True), run(False)
    assert torch.equal(loss, plain_loss)
    assert set(kept) == set(plain)
    for name, gradient in plain.items():
        torch.testing.assert_close(kept[name], gradient, atol=1e-7, rtol=1e-5)


def in_place(policy, parameter):
    with torch.no_grad():
        parameter.mul_(1.5)


def by_optimizer(policy, parameter):
    parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD([parameter], lr=0.5).step()
    parameter.grad = None


def by_loading(policy, parameter):
    policy.load_state_dict({n: p * 1.5 for n, p in policy.state_dict().items()})


def by_replacing(policy, parameter):
    parameter.data = parameter.data * 1.5


@pytest.mark.parametrize("change", [in_place, by_optimizer, by_loading, by_replacing])
@pytest.mark.parametrize("part", ["vision", "projector"])
def test_a_change_of_the_weights_drops_the_features(part, change, counted, policy_for):
    policy, encoded = counted("internvl")
    batch = tickets(policy.processing_class, [one_image()])
    before = logits(policy, batch)
    family = policy.family
    path = family.vision[0] if part == "vision" else family.projector[0]
    change(policy, next(iter(policy.get_submodule(path).parameters())))
    after = logits(policy, batch)
    assert encoded() == 2
    fresh = policy_for("internvl")
    fresh.load_state_dict(policy.state_dict())
    assert not torch.equal(after, before)
    torch.testing.assert_close(after, logits(fresh, batch), atol=ATOL, rtol=0)


def test_a_change_of_dtype_drops_the_features(counted):
    policy, encoded = counted("llava")
    batch = tickets(policy.processing_class, [one_image()])
    logits(policy, batch)
    logits(policy.to(torch.bfloat16), batch)
    assert encoded() == 2
    with torch.autocast("cpu", torch.bfloat16):
        logits(policy.to(torch.float32), batch)
    logits(policy, batch)
    assert encoded() == 4


def test_another_image_is_another_entry(counted):
    policy, encoded = counted("gemma3")
    first, second = one_image(), one_image()
    image = second[0]["content"][0]["image"].copy()
    image.putpixel((0, 0), (1, 2, 3))
    second[0]["content"][0]["image"] = image
    for row in (first, second, first, second):
        logits(policy, tickets(policy.processing_class, [row]))
    assert encoded() == 2


def test_trained_or_adapted_towers_are_encoded_every_time(policy_for):
    batch = tickets(policy_for("internvl").processing_class, [one_image()])
    thawed = policy_for("internvl").requires_grad_(False)
    next(iter(thawed.get_submodule(thawed.family.vision[0]).parameters())).requires_grad_(True)
    policy = policy_for("internvl")
    adapted = get_peft_model(policy, LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    adapted.requires_grad_(False)
    with_adapter = logits(adapted, batch)
    with adapted.disable_adapter():
        assert not torch.equal(logits(adapted, batch), with_adapter)
    for _ in range(2):
        logits(thawed, batch)
    assert thawed.sharing_report()["images_encoded"] == 2
    assert policy.sharing_report()["images_encoded"] == 2


def test_dropout_in_the_tower_is_drawn_every_time(counted):
    policy, encoded = counted("llava")
    policy.base_model.multi_modal_projector.extra = nn.Dropout(0.1)
    batch = tickets(policy.processing_class, [one_image()])
    for _ in range(2):
        logits(policy.train(), batch)
    assert encoded() == 2
    for _ in range(2):
        logits(policy.eval(), batch)
    assert encoded() == 3


def test_the_features_kept_are_bounded(counted):
    policy, encoded = counted("internvl")
    cache = policy.base_model.feature_cache
    pair, single = (tickets(policy.processing_class, [make()]) for make in (two_images, one_image))
    logits(policy, pair)
    cache.limit_bytes = cache.nbytes
    for batch in (single, pair):
        logits(policy, batch)
        assert 0 < cache.nbytes <= cache.limit_bytes
    assert encoded() == 5  # each batch drove the other's features out


def test_features_made_in_inference_mode_do_not_reach_a_backward(policy_for):
    policy = policy_for("internvl")
    policy.freeze()
    batch = tickets(policy.processing_class, [one_image()])
    with torch.inference_mode():
        policy(**batch)
    policy(**batch).logits.sum().backward()
    assert policy.get_output_embeddings().weight.grad.abs().sum() > 0
