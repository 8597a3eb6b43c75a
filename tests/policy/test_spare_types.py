"""Token types for models that take none: dropped where they repeat the ids, refused where they say more."""

import pytest
import torch

from hf_vlm_rl import UnsupportedModelError
from tests.conformance.cases import no_image, one_image, tickets, two_images

NAMES = ("token_type_ids", "mm_token_type_ids")
WITHOUT = ("internvl", "llava", "idefics3", "mistral3")


def batch_of(policy, *rows) -> dict:
    return dict(tickets(policy.processing_class, list(rows)))


def marks(policy, batch) -> torch.Tensor:
    return (batch["input_ids"] == policy.processing_class.state.placeholder_id).long()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", WITHOUT)
def test_what_repeats_the_ids_changes_nothing(family, name, policy_for):
    policy = policy_for(family)
    batch = batch_of(policy, one_image(), two_images(), no_image())
    said = marks(policy, batch)
    with torch.no_grad():
        expected = policy(**batch).logits
        hidden = policy.base_model(**batch).last_hidden_state
        for types in (said, torch.zeros_like(said)):
            assert torch.equal(policy(**batch, **{name: types}).logits, expected)
            assert torch.equal(policy.base_model(**batch, **{name: types}).last_hidden_state, hidden)
        sampled = policy.generate(**batch, max_new_tokens=3, do_sample=False)
        again = policy.generate(**batch, **{name: said}, max_new_tokens=3, do_sample=False)
    assert torch.equal(sampled, again)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("call", ["forward", "generate", "backbone"])
def test_what_says_more_is_refused(name, call, policy_for):
    policy = policy_for("internvl")
    batch = batch_of(policy, one_image())
    types = marks(policy, batch)
    types[0, -1] = 1  # a token of the text
    run = {"forward": policy, "generate": policy.generate, "backbone": policy.base_model}[call]
    with pytest.raises(UnsupportedModelError, match=rf"Got {name} with the values \[0, 1\]"):
        run(**batch, **{name: types})


def test_text_alone_may_say_that_it_is_text(policy_for):
    policy = policy_for("internvl")
    batch = batch_of(policy, no_image())
    with torch.no_grad():
        output = policy.generate(
            **batch, token_type_ids=torch.zeros_like(batch["input_ids"]), max_new_tokens=2
        )
    assert output.shape[1] > batch["input_ids"].shape[1]


def test_a_model_that_takes_types_goes_on_taking_them(policy_for):
    policy = policy_for("gemma3")
    batch = batch_of(policy, one_image())
    with torch.no_grad():
        expected = policy(**batch).logits
        logits = policy(**batch, token_type_ids=marks(policy, batch)).logits
    assert torch.equal(logits, expected)
