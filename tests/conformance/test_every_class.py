"""The contract's clauses that catch what is silently wrong, over every class that is claimed.

Checkpoints are saved and loaded with `from_pretrained`; the written rows of the twelve families say nothing
of inputs and modules, so all of this is derived.
"""

import copy

import pytest
import torch
from datasets import Dataset
from peft import PeftModel, get_peft_model

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.data import prompt_lengths
from hf_vlm_rl.errors import CheckpointError
from hf_vlm_rl.families import FAMILIES
from hf_vlm_rl.hub import save_adapter
from tests.images import photo

from .cases import tickets, user
from .every import (
    CLAIMED,
    LOST_ADAPTERS,
    NO_ROOM_FOR_TICKETS,
    STOCK_DIFFERS,
    STOCK_FAILS_BACKWARD,
    logits,
    none,
    one,
    two,
)
from .rounding import assert_equal, rtol_of_rows

every = pytest.mark.parametrize("model_type", CLAIMED)


def test_at_least_65_classes_are_claimed_and_at_least_55_have_no_row():
    assert len(CLAIMED) >= 65
    assert len(set(CLAIMED) - set(FAMILIES)) >= 55


@every
@pytest.mark.parametrize("make", [one, two])
def test_tickets_give_what_pixels_give(twins, make):
    ours, stock = twins.tickets([make()]), twins.native([make()])
    assert torch.equal(ours["input_ids"], stock["input_ids"])
    assert_equal(logits(twins.policy, ours), logits(twins.bare, stock))


def pair() -> list:
    return [one("cat"), one("coffee", "And what, do you think, could that be over there?")]


@every
def test_a_left_padded_batch_is_that_of_stock(twins):
    """Images of one size, of which only the pixels tell which row they belong to."""
    ours, stock = twins.tickets(pair()), twins.native(pair())
    assert torch.equal(ours["input_ids"], stock["input_ids"])
    assert not bool(ours["attention_mask"].all())
    assert_equal(logits(twins.policy, ours), logits(twins.bare, stock))


@every
def test_a_mixed_batch_gives_what_each_row_gives(model_type, twins):
    if model_type in STOCK_DIFFERS:
        pytest.skip(f"in stock, too, {STOCK_DIFFERS[model_type]} (transformers 5.23)")
    make = twins.rows(one(), two(), none())
    batch = twins.tickets(make)
    with torch.no_grad():
        together = twins.policy(**batch).logits
    for row, messages in enumerate(twins.rows(one(), two(), none())):
        alone = logits(twins.bare, twins.native([messages]))
        assert_equal(together[row][batch["attention_mask"][row].bool()], alone, rtol_of_rows(twins.policy))


@pytest.mark.parametrize("model_type", [name for name in CLAIMED if name not in NO_ROOM_FOR_TICKETS])
def test_tickets_inside_the_ids_give_what_tickets_beside_them_give(twins):
    processing = twins.processing
    beside = twins.tickets(twins.rows(one(), two(), none()))
    encoded = [processing.encode_prompt(messages) for messages in twins.rows(one(), two(), none())]
    inside = processing.pad(encoded, padding_side="left", return_tensors="pt")
    expected = logits(twins.policy, beside)
    expected[..., [i for i in twins.policy.placeholder_ids if i < expected.shape[-1]]] = -1e4
    assert torch.equal(logits(twins.policy, dict(inside)), expected)


@every
def test_gradients_are_those_of_stock(model_type, twins):
    if model_type in STOCK_FAILS_BACKWARD:
        twins.policy.freeze(vision=True, projector=False)
        for name, parameter in twins.policy.named_parameters():
            twins.bare.get_parameter(name).requires_grad_(parameter.requires_grad)
    vocabulary = twins.policy.config.get_text_config().vocab_size
    weights = torch.randn(vocabulary, generator=torch.Generator().manual_seed(0))
    (twins.policy(**twins.tickets([one(), one()]), use_cache=False).logits[:, -5:] @ weights).sum().backward()
    (twins.bare(**twins.native([one(), one()]), use_cache=False).logits[:, -5:] @ weights).sum().backward()
    grads = [p.grad.abs().max() for p in twins.bare.parameters() if p.grad is not None]
    # Over six seeds, stock's gradients of recurrent layers are up to 1.7e-4 from float64, ours up to 1.8e-4.
    rtol = 2e-4 if twins.policy.base_model.sharing.recurrent else 1e-4
    for (name, ours), (_, stock) in zip(
        twins.policy.named_parameters(), twins.bare.named_parameters(), strict=True
    ):
        assert (ours.grad is None) == (stock.grad is None), name
        if stock.grad is not None:
            # The floor is for gradients that are zero but for rounding, as of a key's bias.
            scale = max(stock.grad.abs().max(), 1e-2 * max(grads))
            assert (ours.grad - stock.grad).abs().max() < rtol * scale, name


@every
def test_generation_is_that_of_stock(twins):
    options = {"max_new_tokens": 5, "do_sample": False}
    ours = twins.policy.generate(**twins.tickets([two()]), **options)
    never = list(twins.policy.placeholder_ids)
    stock = twins.bare.generate(**twins.native([two()]), **options, suppress_tokens=never)
    assert torch.equal(ours, stock)


@every
def test_rows_of_one_prompt_give_what_each_gives(model_type, twins):
    """A group of completions, packed or not; the completions differ."""
    batch = twins.tickets([one(), one(), one()])
    tails = twins.processing(text=["red blue", "blue red", "red red"], add_special_tokens=False)["input_ids"]
    tails = torch.tensor([ids[:3] for ids in tails])
    batch["input_ids"] = torch.cat([batch["input_ids"], tails], dim=1)
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    switch = twins.policy.base_model.sharing
    switch.mode = False
    apart = logits(twins.policy, batch | {"use_cache": False})
    switch.mode = True
    assert_equal(logits(twins.policy, batch | {"use_cache": False}), apart)
    assert bool(twins.policy.sharing_report()["tokens"]) == switch.packed


@every
def test_native_pixels_give_what_stock_makes_of_them(twins):
    """A trainer that was given the policy alone; images are recognised and prompts shared where known."""
    rows = [one(), one(), two()]
    batch = twins.native(rows) | {"use_cache": False}
    twins.policy.base_model.sharing.mode = True
    assert_equal(logits(twins.policy, batch), logits(twins.bare, batch))


@every
def test_swapping_images_swaps_the_answers(twins):
    cat, coffee = (last_logits(twins, one(name))[0] for name in ("cat", "coffee"))
    assert (cat - coffee).abs().max() > 1e-3 * cat.abs().max()
    first, second = last_logits(twins, one("coffee"), one("cat"))
    assert (first - coffee).abs().max() < (first - cat).abs().max()
    assert (second - cat).abs().max() < (second - coffee).abs().max()


def last_logits(twins, *rows: list) -> torch.Tensor:
    """(B, V) after the prompts; placeholders, which some models never predict, are left out."""
    with torch.no_grad():
        last = twins.policy(**twins.tickets(list(rows))).logits[:, -1]
    return last[:, (last.abs() < 1e30).all(dim=0)]


@every
def test_lora_trains_the_decoder_alone(twins):
    config = twins.policy.lora_config(r=2)
    assert all(name.startswith(f"{twins.policy.family.language}.") for name in config.target_modules)
    model = get_peft_model(twins.policy, config)
    try:
        model(**twins.tickets([one()])).logits.sum().backward()
        grads = [p.grad for name, p in model.named_parameters() if "lora_B" in name]
        assert any(grad is not None and bool(grad.any()) for grad in grads)
    finally:
        model.unload()


@pytest.mark.parametrize("model_type", [name for name in CLAIMED if name not in LOST_ADAPTERS])
def test_an_adapter_loads_on_the_stock_model_and_as_a_policy(model_type, twins, checkpoint, tmp_path):
    config = twins.policy.lora_config(r=2, experts=False, init_lora_weights=False)
    model = get_peft_model(copy.deepcopy(twins.policy), config)
    save_adapter(model, tmp_path)
    trained = logits(model.eval(), twins.tickets([one()]))
    stock = PeftModel.from_pretrained(copy.deepcopy(twins.bare), tmp_path).eval()
    assert_equal(trained, logits(stock, twins.native([one()])))
    again = AutoVLMPolicy.from_pretrained(tmp_path, base_model=checkpoint(model_type), dtype="float32")
    assert_equal(logits(again.eval(), tickets(again.processing_class, [one()])), trained)


@pytest.mark.parametrize("model_type", LOST_ADAPTERS)
def test_an_adapter_that_would_lose_tensors_is_refused(model_type, twins, checkpoint, tmp_path):
    config = twins.policy.lora_config(r=2, experts=False, init_lora_weights=False)
    save_adapter(get_peft_model(copy.deepcopy(twins.policy), config), tmp_path)
    with pytest.raises(CheckpointError, match=r"do not fit: \d+ tensors"):
        AutoVLMPolicy.from_pretrained(tmp_path, base_model=checkpoint(model_type), dtype="float32")


@every
def test_prompts_are_counted_as_they_are_encoded(twins):
    pictures = {"What is it?": ["cat"], "Compare these two.": ["cat", "coffee"]}
    rows = [
        {"prompt": [{"role": "user", "content": text}], "images": [photo(name, (160, 120)) for name in names]}
        for text, names in pictures.items()
    ]
    conversations = [user(row["prompt"][0]["content"], *row["images"]) for row in rows]
    encoded = [twins.native([messages])["input_ids"].shape[1] for messages in conversations]
    assert list(prompt_lengths(Dataset.from_list(rows), twins.processing)) == encoded


@every
def test_a_policy_answers_in_text(twins):
    assert isinstance(
        twins.policy.chat("What is this?", images=[photo("cat", (224, 224))], max_new_tokens=3), str
    )
