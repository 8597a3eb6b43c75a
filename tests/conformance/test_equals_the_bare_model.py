"""Clauses 1, 2, 3 and 13: what the policy computes is what the bare model computes."""

import pytest
import torch

from hf_vlm_rl import ImageError
from tests.images import photo

from .cases import ALL, families, images_of, mixture, native, no_image, one_image, tickets, two_images, user

# Float32 on one thread: the same kernels on the same numbers. Images of different sizes go through
# a tower in another grouping than stock's, which moves the last bits.
ATOL = 2e-5


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits[batch["attention_mask"].bool()]


@pytest.mark.parametrize("family", ALL)
def test_without_images_the_policy_equals_the_bare_model(family, policy_for, bare_for):
    policy, bare = policy_for(family), bare_for(family)
    ids = policy.processing_class.tokenizer(
        ["Say hello to me.", "What is the answer to the question?"],
        padding=True,
        padding_side="left",
        return_tensors="pt",
    )
    batch = {key: ids[key] for key in ("input_ids", "attention_mask")}
    assert torch.equal(logits(policy, batch), logits(bare, batch))
    assert torch.equal(
        policy.base_model(**batch).last_hidden_state, bare.base_model(**batch).last_hidden_state
    )


@pytest.mark.parametrize("family", families("rows without images"))
def test_text_prompts_equal_those_of_the_native_processor(family, policy_for, native_processor_for):
    ours = tickets(policy_for(family).processing_class, [no_image()])
    assert torch.equal(ours["input_ids"], native(native_processor_for(family), [no_image()])["input_ids"])
    assert set(ours) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("make", [one_image, two_images])
@pytest.mark.parametrize("family", ALL)
def test_tickets_give_what_pixels_give(family, make, policy_for, bare_for, native_processor_for):
    policy, bare = policy_for(family), bare_for(family)
    ours = tickets(policy.processing_class, [make()])
    stock = native(native_processor_for(family), [make()])
    assert torch.equal(ours["input_ids"], stock["input_ids"])
    assert ours["pixel_values"].dtype == torch.uint8
    assert len(ours["pixel_values"]) == len(ours["image_grid_thw"]) == len(images_of(make()))
    torch.testing.assert_close(logits(policy, ours), logits(bare, stock), atol=ATOL, rtol=0)


@pytest.mark.parametrize("family", ALL)
def test_pixels_are_accepted_as_the_bare_model_accepts_them(
    family, policy_for, bare_for, native_processor_for
):
    batch = native(native_processor_for(family), [one_image()])
    assert torch.equal(logits(policy_for(family), batch), logits(bare_for(family), batch))


@pytest.mark.parametrize("family", ALL)
def test_tickets_inside_the_ids_give_what_tickets_beside_them_give(family, policy_for):
    policy = policy_for(family)
    processing_class = policy.processing_class
    beside = tickets(processing_class, mixture(family))
    encoded = [processing_class.encode_prompt(messages) for messages in mixture(family)]
    inside = processing_class.pad(encoded, padding_side="left", return_tensors="pt")
    assert inside["input_ids"].shape == beside["input_ids"].shape
    assert not torch.equal(inside["input_ids"], beside["input_ids"])
    assert torch.equal(inside["attention_mask"], beside["attention_mask"])
    # While sampling, placeholders have no probability; id-only trainers compare with these logits.
    expected = logits(policy, beside)
    expected[..., list(policy.placeholder_ids)] = -1e4
    assert torch.equal(logits(policy, dict(inside)), expected)


@pytest.mark.parametrize("family", ALL)
def test_gradients_equal_those_of_the_bare_model(family, policy_for, bare_for, native_processor_for):
    """One image three times: encoded once, its gradient is the sum over the rows."""
    rows = [one_image(), one_image(), two_images()]
    policy, bare = policy_for(family), bare_for(family)
    processor = native_processor_for(family)
    batch = tickets(policy.processing_class, rows)
    weights = torch.randn(
        policy.config.get_text_config().vocab_size, generator=torch.Generator().manual_seed(0)
    )
    (policy(**batch).logits[:, -5:] @ weights).sum().backward()
    for row in rows:
        (bare(**native(processor, [row])).logits[:, -5:] @ weights).sum().backward()
    largest = max(p.grad.abs().max() for p in bare.parameters() if p.grad is not None)
    for (name, ours), (_, stock) in zip(policy.named_parameters(), bare.named_parameters(), strict=True):
        assert (ours.grad is None) == (stock.grad is None), name
        if stock.grad is not None:
            # The floor is for gradients that are zero but for rounding, as of a key's bias.
            scale = max(stock.grad.abs().max(), 1e-2 * largest)
            assert (ours.grad - stock.grad).abs().max() < 1e-4 * scale, name


SIZES = [(28, 28), (224, 224), (300, 100), (90, 310), (640, 427)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("family", ALL)
def test_placeholders_are_as_many_as_features(family, size, policy_for):
    policy = policy_for(family)
    if (family, size) == ("mistral3", (28, 28)):
        # One patch: transformers' projector loses the token dimension. Refused before any forward.
        with pytest.raises(ImageError, match=r"Row 0.*1 image tokens.*at least 2"):
            tickets(policy.processing_class, [user("What?", photo("astronaut", size))])
        return
    batch = tickets(policy.processing_class, [user("What?", photo("astronaut", size))])
    seen = {}

    def capture(module, args, kwargs):
        seen.update(kwargs)

    language = policy.get_submodule(policy.family.language)
    language.register_forward_pre_hook(capture, with_kwargs=True)
    placeholders = int((batch["input_ids"] == policy.config.image_token_id).sum())
    with torch.no_grad():
        policy(**batch)
        text = policy.get_input_embeddings()(batch["input_ids"])
    changed = (seen["inputs_embeds"] != text).any(-1).sum()
    assert placeholders > 0
    assert int(changed) == placeholders


@pytest.mark.parametrize("family", ALL)
def test_a_literal_placeholder_in_the_text_is_no_image(family, policy_for):
    processing_class = policy_for(family).processing_class
    literal = processing_class.image_token
    with pytest.raises(ImageError, match=r"Row 1, message 0 \(user\).*placeholder"):
        tickets(processing_class, [one_image(), user(f"Is {literal} a word?", photo("cat", (56, 56)))])
    with pytest.raises(ImageError, match="Row 0"):
        processing_class(text=[f"{literal} and {literal}"], images=[[photo("cat", (56, 56))]])


@pytest.mark.parametrize("family", ALL)
def test_placeholders_without_an_image_are_refused_by_every_forward(family, policy_for):
    policy = policy_for(family)
    batch = tickets(policy.processing_class, [one_image()])
    blind = {key: batch[key] for key in ("input_ids", "attention_mask")}
    for call in (policy, policy.base_model, policy.generate):
        with pytest.raises(LookupError, match=r"Row 0.*no image came with them"):
            call(**blind)
