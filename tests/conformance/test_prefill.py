"""Clause 6 in `generate`: with prompts prefilled once, samples and logits are those without."""

import pytest
import torch
from transformers import GenerationConfig

from hf_vlm_rl.compat import CACHE
from tests.images import photo

from .cases import ALL, no_image, one_image, tickets, user
from .test_sharing import prompts, with_sharing

MESSAGES = (
    ("What is this? Look at it from left to right, and tell me all that you can see.", "astronaut"),
    ("And this? Compare it with the first one.", "cat"),
)

# The last token of a prompt is seen by those before it.
NOT_PREFILLED = ("paligemma",)
PREFILLED = [family for family in ALL if family not in NOT_PREFILLED]


def generate(policy, batch, mode, **settings):
    with_sharing(policy, mode)
    torch.manual_seed(0)
    return policy.generate(
        **batch, max_new_tokens=6, return_dict_in_generate=True, output_logits=True, **settings
    )


@pytest.mark.parametrize("do_sample", [False, True])
@pytest.mark.parametrize("family", ALL)
def test_prefilling_distinct_prompts_once_changes_no_answer(family, do_sample, policy_for):
    policy = policy_for(family)
    rows = prompts(family)
    batch = tickets(policy.processing_class, [rows[index] for index in (0, 1, 0, 2, 1, 0)])
    found = generate(policy, batch, True, do_sample=do_sample)
    expected = generate(policy, batch, False, do_sample=do_sample)
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(torch.stack(found.logits), torch.stack(expected.logits), atol=1e-4, rtol=1e-4)
    report = policy.sharing_report()
    distinct = 2 if family == "paligemma" else 3
    assert (report["prompts"], report["prompts_prefilled"]) == (
        (0, 0) if family in NOT_PREFILLED else (6, distinct)
    )


@pytest.mark.parametrize("family", PREFILLED)
def test_prefilling_text_prompts_once_changes_no_answer(family, policy_for):
    policy = policy_for(family)
    longer = no_image()
    longer[0]["content"][0]["text"] += " And then say goodbye, too."
    batch = tickets(policy.processing_class, [no_image(), longer, no_image(), longer])
    found, expected = (generate(policy, batch, mode, do_sample=True) for mode in (True, False))
    assert torch.equal(found.sequences, expected.sequences)
    assert policy.sharing_report()["prompts_prefilled"] == 2


# Layers with windows keep no more than these hold, so nothing but whole prompts is shared there.
WINDOWS = ("gemma3",)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 3, 2, 1)], ids=["distinct", "repeated"])
@pytest.mark.parametrize("family", PREFILLED)
def test_what_unequal_prompts_begin_with_is_prefilled_once(family, order, policy_for):
    """As in a later turn of conversations with tools: siblings have seen the same, some have seen more."""
    policy = policy_for(family)
    first, second = (user(text, photo(name, (140, 140)))[0]["content"] for text, name in MESSAGES)
    contents = [first, first + second, first + second + first[1:], second]
    conversations = [[{"role": "user", "content": contents[number]}] for number in order]
    batch = tickets(policy.processing_class, conversations)
    found, expected = (generate(policy, batch, mode, do_sample=True) for mode in (True, False))
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(torch.stack(found.logits), torch.stack(expected.logits), atol=1e-4, rtol=1e-4)
    report = policy.sharing_report()
    assert report["tokens"] == 0
    if family in WINDOWS:
        assert report["prompts"] == (len(order) if len(order) > 4 else 0)
    else:
        assert (report["prompts"], report["prompts_prefilled"]) == (len(order), 4)
        assert 0 < report["prompt_tokens_prefilled"] < 0.6 * report["prompt_tokens"]


@pytest.mark.parametrize("family", ["internvl", "llava", "idefics3"])
def test_a_returned_cache_goes_on_as_a_plain_one_would(family, policy_for):
    """Several tokens at once, behind prompts of unequal length and number of rows."""
    policy = policy_for(family)
    rows = [no_image(), [no_image()[0], {"role": "assistant", "content": "Hi."}, no_image()[0]]]
    batch = tickets(policy.processing_class, [rows[index] for index in (0, 1, 0)])
    further = torch.tensor([[5, 6, 7], [8, 9, 10], [11, 12, 13]])
    outputs = []
    for mode in (True, False):
        output = generate(policy, batch, mode, do_sample=False)
        length = output[CACHE].get_seq_length()
        mask = torch.cat(
            [batch["attention_mask"], torch.ones(3, length + 3 - batch["input_ids"].shape[1])], dim=1
        )
        with torch.no_grad():
            outputs.append(policy(input_ids=further, attention_mask=mask, **{CACHE: output[CACHE]}))
    torch.testing.assert_close(outputs[0].logits, outputs[1].logits, atol=1e-4, rtol=1e-4)
    cache = outputs[0][CACHE]
    own = sum(layer.keys.numel() + layer.prompt_keys.numel() for layer in cache.layers)
    assert own < sum(layer.keys.numel() for layer in outputs[1][CACHE].layers)
    with pytest.raises(NotImplementedError, match="sharing=False"):
        cache.crop(-own)
    order = torch.tensor([2, 0])  # the second prompt is continued by nobody then
    last = []
    for output in outputs:
        output[CACHE].reorder_cache(order)
        seen = torch.cat([mask, torch.ones(3, 1)], dim=1)[order]
        with torch.no_grad():
            last.append(policy(input_ids=further[:2, :1], attention_mask=seen, **{CACHE: output[CACHE]}))
    torch.testing.assert_close(last[0].logits, last[1].logits, atol=1e-4, rtol=1e-4)
    assert len(cache.layers[0].prompt_keys) == 1


@pytest.mark.parametrize("family", ["internvl", "gemma3"])  # stock Qwen2.5-VL takes none
def test_ids_of_32_bits_give_what_those_of_64_give(family, policy_for):
    policy = with_sharing(policy_for(family), True)
    batch = tickets(policy.processing_class, [one_image(), one_image()])
    short = batch | {"input_ids": batch["input_ids"].int()}
    options = {"max_new_tokens": 3, "do_sample": False}
    with torch.no_grad():
        assert torch.equal(policy(**short).logits, policy(**batch).logits)
    assert torch.equal(policy.generate(**short, **options), policy.generate(**batch, **options).int())


def test_the_gate_leaves_short_prompts_alone(policy_for):
    policy = with_sharing(policy_for("internvl"), "auto")
    batch = tickets(policy.processing_class, [no_image(), no_image()])
    policy.generate(**batch, max_new_tokens=2)
    assert policy.sharing_report()["prompts"] == 0
    assert "256 prompt tokens" in next(iter(policy.sharing_report()["not_shared"]))


@pytest.mark.parametrize(
    "settings", [{"num_beams": 2}, {"num_return_sequences": 2, "do_sample": True}, {"use_cache": False}]
)
def test_settings_that_need_a_plain_run_get_one(settings, policy_for):
    policy = policy_for("internvl")
    batch = tickets(policy.processing_class, [one_image(), one_image()])
    found, expected = (generate(policy, batch, mode, **settings) for mode in (True, False))
    assert torch.equal(found.sequences, expected.sequences)
    report = policy.sharing_report()
    assert report["prompts"] == 0
    assert any(name in reason for reason in report["not_shared"] for name in settings)


def test_a_generation_config_says_what_keywords_would(policy_for):
    policy = with_sharing(policy_for("internvl"), True)
    batch = tickets(policy.processing_class, [one_image(), one_image()])
    policy.generate(**batch, generation_config=GenerationConfig(num_beams=2, max_new_tokens=2))
    assert policy.sharing_report()["prompts"] == 0
    policy.generate(**batch, generation_config=GenerationConfig(do_sample=True, max_new_tokens=2))
    assert policy.sharing_report()["prompts_prefilled"] == 1
