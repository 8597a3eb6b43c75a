"""Clause 18: native float pixels go through the stock forward as they come, and training on them warns."""

import pytest
import torch
from transformers.utils import logging

from .cases import ALL, mixture, native, one_image, two_images

WARNING = "trains on native pixels"


@pytest.fixture
def sides(policy_for, bare_for, native_processor_for):
    """A frozen policy with default settings, the stock model and its processor."""

    def make(family):
        policy = policy_for(family).requires_grad_(False)
        return policy, bare_for(family).requires_grad_(False), native_processor_for(family)

    return make


def warned(caplog) -> int:
    return sum(WARNING in record.message for record in caplog.records)


@pytest.mark.parametrize("family", ALL)
def test_logits_are_stocks_to_the_bit(family, sides):
    policy, bare, processor = sides(family)
    batch = native(processor, [row for row in mixture(family) for _ in range(3)])
    with torch.no_grad():
        found, expected = (model(**batch, use_cache=False).logits for model in (policy, bare))
    assert torch.equal(found, expected)
    report = policy.sharing_report()
    assert report["not_shared"] == {"the images are native pixels, and no tickets": 1}
    assert report["images_encoded"] == report["tokens"] == 0


@pytest.mark.parametrize("family", ALL)
def test_pixels_that_ask_for_a_gradient_get_stocks(family, sides):
    policy, bare, processor = sides(family)
    gradients = []
    for model in (policy, bare):
        batch = native(processor, [one_image()] * 3 + [two_images()] * 2)
        batch["pixel_values"].requires_grad_()
        log_probs = model(**batch, use_cache=False).logits[batch["attention_mask"].bool()].log_softmax(-1)
        log_probs[:, ::7].mean().backward()
        gradients.append(batch["pixel_values"].grad)
    assert gradients[1].abs().max() > 0
    assert torch.equal(*gradients)


@pytest.mark.parametrize("family", ALL)
def test_rollouts_are_those_of_the_stock_model(family, sides):
    policy, bare, processor = sides(family)
    batch = native(processor, [one_image()] * 3 + [two_images()] * 3)
    options = {"max_new_tokens": 5, "do_sample": False}
    found = policy.generate(**batch, **options)
    expected = bare.generate(**batch, **options, suppress_tokens=list(policy.placeholder_ids))
    assert torch.equal(found, expected)


def test_training_on_them_says_once_what_was_forgotten(sides, caplog):
    logging.warning_once.cache_clear()
    policy, _, processor = sides("llava")
    policy.get_output_embeddings().requires_grad_(True)  # a training of nothing is refused
    batch = native(processor, [one_image()] * 2)
    policy(**batch, use_cache=False)
    assert warned(caplog) == 0  # no training
    for _ in range(2):
        policy.train()(**batch, use_cache=False)
    assert warned(caplog) == 1
    assert "processing_class=policy.processing_class" in caplog.text
