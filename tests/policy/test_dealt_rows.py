"""`DataParallel` cuts every tensor of a batch into equal parts, those of images as well."""

import pytest
import torch

from hf_vlm_rl.errors import TicketError
from tests.images import photo

FAMILIES = ("qwen2_5_vl", "internvl")


def batch_of(policy, *images_of_rows):
    """A batch with so many images in each row."""
    encode = policy.processing_class
    images = [[photo("cat", (112, 112))] * number for number in images_of_rows]
    texts = [f"{encode.image_token * number} What is it?" for number in images_of_rows]
    return encode(images, texts, padding=True, return_tensors="pt")


def parts_of(batch, number):
    """What `DataParallel` gives to each of so many devices."""
    dealt = {name: tensor.chunk(number) for name, tensor in batch.items()}
    return [dict(zip(dealt, tensors, strict=True)) for tensors in zip(*dealt.values(), strict=True)]


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_with_an_image_in_each_row_compute_what_the_batch_does(family, policy_for):
    policy = policy_for(family)
    batch = batch_of(policy, 1, 1, 1, 1)
    with torch.no_grad():
        whole = policy(**batch).logits
        parts = torch.cat([policy(**part).logits for part in parts_of(batch, 2)])
    torch.testing.assert_close(parts, whole, atol=5e-5, rtol=0)  # other batch shapes


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("images", [(2, 1, 0, 1), (0, 2), (3, 1)])
def test_parts_whose_images_are_those_of_other_rows_are_refused(images, family, policy_for):
    policy = policy_for(family)
    first, second = parts_of(batch_of(policy, *images), 2)
    with pytest.raises((TicketError, ValueError), match=r"image|ticket"):
        policy(**first), policy(**second)
