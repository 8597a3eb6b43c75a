"""A rank without images gives the gradients that the others wait for."""

import pytest
import torch

from hf_vlm_rl.policy.images.features import encode_images
from tests.conformance.cases import ALL, images_of, one_image, two_images

pytestmark = pytest.mark.trl


def gradients(policy, value: torch.Tensor) -> dict[str, torch.Tensor]:
    policy.zero_grad()
    value.backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", ALL)
def test_without_images_every_weight_that_images_train_has_gradient_zero(family, policy_for):
    policy = policy_for(family)
    processing = policy.processing_class
    images = images_of([*one_image(), *two_images()])
    tickets = [processing.image_store.put(image) for image in images]
    encoded, none = encode_images(policy.base_model, processing, tickets, policy.device)
    features = encoded["image"]
    layers = [features.pooler_output, *(features.get("deepstack_features") or [])]
    expected = gradients(policy, sum(tensor.sum() for layer in layers for tensor in layer))
    nothing, idle = encode_images(policy.base_model, processing, [], policy.device)
    assert (none, nothing) == (None, {})
    found = gradients(policy, idle)
    assert found.keys() == expected.keys()
    assert all(not value.any() for value in found.values())
