"""Clause 18: native float pixels are as good as tickets: encoded once, prompts shared, the stock numbers."""

import pytest
import torch

from tests.images import photo

from .cases import ALL, mixture, native, one_image, two_images, user

ATOL = 5e-5
BOTH_DIRECTIONS = ("gemma3", "paligemma")
# Its native processor says in `batch_num_images` how many images a row has: with rows of one and of several,
# nothing tells which entry is whose, and the stock forward runs on the pixels.
BY_ROW = ("llava_onevision",)


@pytest.fixture
def sides(policy_for, bare_for, native_processor_for):
    def make(family, sharing=True):
        policy = policy_for(family).requires_grad_(False)
        policy.base_model.sharing.mode = sharing
        return policy, bare_for(family).requires_grad_(False), native_processor_for(family)

    return make


def logits(model, batch, **options):
    with torch.no_grad():
        return model(**batch, use_cache=False, **options).logits


def real(values, batch):
    return values[batch["attention_mask"].bool()]


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("side", ["left", "right"])
def test_repeated_rows_are_encoded_once_and_share_their_prompts(family, side, sides):
    policy, bare, processor = sides(family)
    batch = native(processor, [row for row in mixture(family) for _ in range(3)], side)
    expected = real(logits(bare, batch), batch)
    torch.testing.assert_close(real(logits(policy, batch), batch), expected, atol=ATOL, rtol=1e-4)
    first = policy.sharing_report()
    if family in BY_ROW:
        assert first["images_encoded"] == 0
        return
    assert first["images_reused"] >= 2 * first["images_encoded"] > 0
    torch.testing.assert_close(real(logits(policy, batch), batch), expected, atol=ATOL, rtol=1e-4)
    report = policy.sharing_report()
    assert report["images_encoded"] == first["images_encoded"]
    if family not in BOTH_DIRECTIONS:
        assert report["not_shared"] == {}
        assert report["tokens_computed"] < 0.6 * report["tokens"]


@pytest.mark.parametrize("family", ALL)
def test_gradients_are_those_of_the_stock_model(family, sides):
    policy, bare, processor = sides(family)
    batch = native(processor, [one_image()] * 3 + [two_images()] * 2)
    gradients = []
    for model in (policy, bare):
        model.requires_grad_(True)
        (real(model(**batch, use_cache=False).logits, batch).log_softmax(-1)[:, ::7].mean()).backward()
        gradients.append(
            {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
        )
    mine, theirs = gradients
    assert mine.keys() == theirs.keys()
    largest = max(gradient.abs().max() for gradient in theirs.values())
    for name, gradient in theirs.items():
        scale = max(gradient.abs().max(), 1e-2 * largest)
        assert (mine[name] - gradient).abs().max() < 1e-4 * scale, name


@pytest.mark.parametrize("family", ALL)
def test_rollouts_are_those_of_the_stock_model(family, sides):
    policy, bare, processor = sides(family)
    batch = native(processor, [one_image()] * 3 + [two_images()] * 3)
    options = {"max_new_tokens": 5, "do_sample": False}
    found = policy.generate(**batch, **options)
    expected = bare.generate(**batch, **options, suppress_tokens=list(policy.placeholder_ids))
    assert torch.equal(found, expected)
    if family not in (*BOTH_DIRECTIONS, *BY_ROW):
        assert policy.sharing_report()["prompts_prefilled"] == 2


@pytest.mark.parametrize("family", ALL)
def test_other_pixels_under_the_same_ids_are_other_images(family, sides):
    policy, bare, processor = sides(family)
    rows = [user("What is it?", photo(name, (140, 140))) for name in ("cat", "coffee", "cat", "rocket")]
    batch = native(processor, rows)
    assert torch.equal(batch["input_ids"][0], batch["input_ids"][1])
    torch.testing.assert_close(logits(policy, batch), logits(bare, batch), atol=ATOL, rtol=1e-4)
    other = dict(batch, pixel_values=batch["pixel_values"].flip(-1))
    torch.testing.assert_close(logits(policy, other), logits(bare, other), atol=ATOL, rtol=1e-4)


@pytest.mark.parametrize("family", ["idefics3", "smolvlm"])
def test_rows_whose_pixels_are_padding_poison_no_later_forward(family, sides):
    """These families pad pixels to the most images of a row; a blank entry must stay a blank one."""
    policy, bare, processor = sides(family)
    one, two, none = one_image(), two_images(), user("Hello there.")
    for rows in ([two, none], [one, two], [two, one], [none, one]):
        batch = native(processor, rows)
        found, expected = real(logits(policy, batch), batch), real(logits(bare, batch), batch)
        torch.testing.assert_close(found, expected, atol=ATOL, rtol=1e-4)


def test_unknown_tensors_leave_everything_to_the_stock_model_and_say_so_once(sides, caplog):
    policy, bare, processor = sides("llava")
    batch = native(processor, [one_image()] * 2)
    for _ in range(2):
        found = logits(policy, batch, extra_tensor=torch.ones(1))
    torch.testing.assert_close(found, logits(bare, batch), atol=ATOL, rtol=1e-4)
    assert policy.sharing_report()["images_encoded"] == 0
    said = [
        record for record in caplog.records if "processing_class=policy.processing_class" in record.message
    ]
    assert len(said) == 1
    assert "beside extra_tensor" in said[0].message


def test_without_sharing_the_stock_forward_runs_on_the_pixels(sides):
    policy, bare, processor = sides("internvl", sharing=False)
    batch = native(processor, [one_image()] * 2)
    assert torch.equal(logits(policy, batch), logits(bare, batch))
    assert policy.sharing_report()["images_encoded"] == 0
