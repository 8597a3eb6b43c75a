"""`generate` as its users call it beyond trainers: on a cache of their own, and with an assistant."""

import copy

import pytest
import torch
import transformers

from hf_vlm_rl.compat import CACHE
from tests.conformance.cases import ALL, native, one_image, tickets


@pytest.fixture
def quiet():
    """Assisted generation itself makes a call that transformers deprecates."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


NEW = 6
GREEDY = {"max_new_tokens": NEW, "do_sample": False}


def words(policy, number: int) -> torch.Tensor:
    """(1, number) ids of text."""
    drawn = torch.Generator().manual_seed(0)
    kept = [token for token in range(5, 60) if token not in policy.processing_class.state.never_sampled]
    return torch.tensor(kept)[torch.randint(len(kept), (1, number), generator=drawn)]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("family", ALL)
def test_a_second_turn_of_text_goes_on_with_a_cache_and_without_tickets(
    family, inside, policy_for, bare_for, native_processor_for
):
    policy, bare = policy_for(family), bare_for(family)
    pixels = native(native_processor_for(family), [one_image()])
    batch = dict(tickets(policy.processing_class, [one_image()]))
    if inside:
        ids = torch.tensor([policy.processing_class.encode_prompt(one_image())["input_ids"]])
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    found = []
    for model, inputs in ((bare, pixels), (policy, batch)):
        with torch.no_grad():
            first = model.generate(
                **inputs,
                **GREEDY,
                return_dict_in_generate=True,
                suppress_tokens=list(policy.placeholder_ids),
            )
        ids = torch.cat([first.sequences, words(policy, 4)], dim=1)
        again = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            **{CACHE: first[CACHE]},
            suppress_tokens=list(policy.placeholder_ids),
            **GREEDY,
        )
        found.append(again[:, pixels["input_ids"].shape[1] :])
    assert torch.equal(*found)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("family", ALL)
def test_a_policy_may_assist(family, policy_for, bare_for, native_processor_for):
    policy, bare = policy_for(family), bare_for(family)
    batch = dict(tickets(policy.processing_class, [one_image()]))
    plain = policy.generate(**batch, **GREEDY)
    assistant = copy.deepcopy(policy)
    assisted = policy.generate(**batch, **GREEDY, assistant_model=assistant)
    pixels = native(native_processor_for(family), [one_image()])
    given = {"suppress_tokens": list(policy.placeholder_ids), **GREEDY}
    found = [
        bare.generate(**pixels, **given, assistant_model=model) for model in (copy.deepcopy(bare), assistant)
    ]
    assert torch.equal(*found)
    assert torch.equal(assisted[:, -NEW:], found[0][:, -NEW:])
    # With some weights, stock's PaliGemma (transformers 5.23) answers otherwise with an assistant.
    if torch.equal(found[0], bare.generate(**pixels, **given)):
        assert torch.equal(assisted, plain)
