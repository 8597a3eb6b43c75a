"""Processors that write the ids by themselves: called as a whole, they give what stock gives."""

import pytest
import torch

from hf_vlm_rl import ImageError
from tests.conformance.cases import native, no_image, one_image, tickets, two_images, user
from tests.images import photo

# Both have a `__call__` of their own, which hands images to the image processor directly.
WHOLE = ("idefics2", "nemotron_h_omni")

# Float32 on one thread, images of different size in another grouping than stock's.
ATOL = 2e-5


def rows():
    return [one_image(), two_images(), no_image()]


@pytest.mark.parametrize("family", WHOLE)
def test_ids_are_those_of_the_native_call(family, processing_for, native_processor_for):
    ours = tickets(processing_for(family), rows())
    for row, messages in enumerate(rows()):
        ids = ours["input_ids"][row][ours["attention_mask"][row].bool()]
        assert torch.equal(ids, native(native_processor_for(family), [messages])["input_ids"][0])
    assert len(ours["pixel_values"]) == 3


@pytest.mark.parametrize("family", WHOLE)
def test_logits_and_gradients_are_those_of_the_bare_model(family, policy_for, bare_for, native_processor_for):
    policy, bare, processor = policy_for(family), bare_for(family), native_processor_for(family)
    ours = tickets(policy.processing_class, rows())
    weight = torch.randn(policy.config.get_text_config().vocab_size, generator=torch.manual_seed(0))
    logits = policy(**ours).logits
    (logits[:, -5:] @ weight).sum().backward()
    for row, messages in enumerate(rows()):
        stock = bare(**native(processor, [messages])).logits
        (stock[:, -5:] @ weight).sum().backward()
        torch.testing.assert_close(
            logits[row][ours["attention_mask"][row].bool()], stock[0], atol=ATOL, rtol=0
        )
    for (name, parameter), expected in zip(policy.named_parameters(), bare.parameters(), strict=True):
        assert (parameter.grad is None) == (expected.grad is None), name
        if expected.grad is not None:
            torch.testing.assert_close(parameter.grad, expected.grad, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", WHOLE)
def test_tickets_inside_ids_are_the_same_images(family, policy_for):
    policy = policy_for(family)
    processing = policy.processing_class
    inside = processing.pad([processing.encode_prompt(two_images())], return_tensors="pt")
    with torch.no_grad():
        expected = policy(**tickets(processing, [two_images()])).logits
        logits = policy(**inside).logits
    kept = [i for i in range(logits.shape[-1]) if i not in policy.placeholder_ids]
    assert torch.equal(logits[..., kept], expected[..., kept])


def test_image_options_of_a_call_are_honoured(policy_for, bare_for, native_processor_for):
    policy, bare = policy_for("idefics2"), bare_for("idefics2")
    message = user("What is it?", photo("cat", (140, 140)))
    text = policy.processing_class.apply_chat_template([message], tokenize=False)
    call = {
        "text": text,
        "images": [[photo("cat", (140, 140))]],
        "images_kwargs": {"size": {"shortest_edge": 28, "longest_edge": 56}},
        "return_tensors": "pt",
    }
    ours, stock = policy.processing_class(**call), native_processor_for("idefics2")(**call)
    plain = policy.processing_class(**{name: value for name, value in call.items() if "kwargs" not in name})
    assert stock["pixel_values"].shape[-1] == 56
    with torch.no_grad():
        logits = policy(**ours).logits
        torch.testing.assert_close(logits, bare(**stock).logits, atol=ATOL, rtol=0)
        assert (policy(**plain).logits - logits).abs().max() > 1e-3


def test_a_literal_placeholder_is_an_error(processing_for):
    processing = processing_for("idefics2")
    with pytest.raises(ImageError, match="placeholder"):
        processing(text=["<image> and <image>"], images=[[photo("cat", (84, 84))]])
