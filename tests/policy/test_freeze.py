"""`policy.freeze`: each part on its own, with gradients that flow through what is frozen."""

import itertools

import pytest
import torch

from hf_vlm_rl.families.tiny import FAMILIES
from hf_vlm_rl.policy.trained.parts import below, part_of

from ..loading.adapters.models import encoded

CHOICES = [
    dict(zip(("vision", "projector", "language"), c, strict=True))
    for c in itertools.product((True, False), repeat=3)
]


def expected(policy) -> dict[str, set[str]]:
    """Names of the parameters of each part, by the family's paths and by hand for the rest."""
    family, names = policy.family, [name for name, _ in policy.named_parameters()]
    projector = {name for name in names if below(name, family.projector) or name == "model.image_newline"}
    vision = {name for name in names if below(name, family.vision)} - projector
    return {"vision": vision, "projector": projector, "language": set(names) - vision - projector}


def trained(policy) -> set[str]:
    return {name for name, weight in policy.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_part_is_frozen_on_its_own(family, policy_for):
    for choice in CHOICES:
        policy = policy_for(family)
        parts = expected(policy)
        assert all(parts.values())
        assert policy.freeze(**choice) is policy
        kept = [names for part, names in parts.items() if not choice[part]]
        assert trained(policy) == set().union(*kept), choice


@pytest.mark.parametrize("family", FAMILIES)
def test_by_default_the_decoder_with_head_and_embeddings_is_trained(family, policy_for):
    policy = policy_for(family).freeze()
    assert trained(policy) == expected(policy)["language"]
    assert policy.get_input_embeddings().weight.requires_grad
    assert policy.get_output_embeddings().weight.requires_grad


def test_what_is_frozen_stays_frozen(policy_for):
    policy = policy_for("internvl").freeze(vision=True, projector=False)
    policy.freeze(vision=False, projector=True)
    assert trained(policy) == expected(policy)["language"]


def test_every_parameter_belongs_to_a_part(policy_for):
    policy = policy_for("llava_next")
    assert part_of("model.image_newline", policy.family) == "projector"
    assert part_of("model.language_models.0", policy.family) == "projector"  # no part by a prefix alone


def gradients(policy, checkpointing: bool) -> dict[str, torch.Tensor]:
    policy.train()
    if checkpointing:
        policy.gradient_checkpointing_enable({"use_reentrant": False})
    policy(**encoded(policy.processing_class), use_cache=False).logits.log_softmax(-1)[
        :, ::3
    ].mean().backward()
    return {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("choice", CHOICES[1:-1], ids=lambda c: "+".join(k for k, v in c.items() if v))
@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl", "qwen3_vl", "llava_next"])
def test_gradients_of_the_trained_parts_are_those_of_the_whole(family, choice, checkpointing, policy_for):
    whole = gradients(policy_for(family), checkpointing=False)
    policy = policy_for(family).freeze(**choice)
    found = gradients(policy, checkpointing)
    names = trained(policy)
    assert set(found) == names & set(whole)
    assert max(gradient.abs().max() for gradient in found.values()) > 0
    largest = max(gradient.abs().max() for gradient in whole.values())
    for name, gradient in found.items():
        scale = max(whole[name].abs().max(), 1e-2 * largest)
        assert (gradient - whole[name]).abs().max() < 1e-4 * scale, name


def test_features_of_frozen_parts_are_kept(policy_for):
    policy = policy_for("llava_next").freeze()
    for _ in range(2):
        policy(**encoded(policy.processing_class))
    assert policy.sharing_report()["images_encoded"] == 1


def test_text_alone_has_nothing_to_train_in_a_tower(policy_for):
    policy = policy_for("internvl").freeze(vision=False, projector=False, language=True)
    ids = torch.arange(100, 120)[None]
    assert not policy(input_ids=ids).logits.requires_grad
    assert policy(**encoded(policy.processing_class)).logits.requires_grad
