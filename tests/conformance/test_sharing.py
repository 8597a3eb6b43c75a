"""Clause 6: with prefix sharing on, values and gradients are those with it off."""

import pytest
import torch
from peft import get_peft_model
from transformers import GenerationConfig

from .cases import ALL, images_of, no_image, one_image, tickets, two_images

# Packed and padded batches sum in other orders; both are within this of a float64 run.
ATOL = 5e-5

# A cache with windows, or of tokens that see each other in both directions, is no shared one.
NOT_PREFILLED = ("gemma3", "paligemma")
PREFILLED = [family for family in ALL if family not in NOT_PREFILLED]


def group(policy, rows, completions=3, order=None, seed=0):
    """A training batch as GRPO makes it: prompts left-padded, completions right-padded, shuffled.

    Every prompt of `rows` has `completions` rows; their completions differ in length, and two of
    them begin alike.
    """
    batch = tickets(policy.processing_class, [row for row in rows for _ in range(completions)])
    batch = {key: batch[key] for key in ("input_ids", "attention_mask", "pixel_values") if key in batch}
    count, generator = len(batch["input_ids"]), torch.Generator().manual_seed(seed)
    own = torch.randint(100, 300, (count, 7), generator=generator)
    own[1, :3] = own[0, :3]
    lengths = torch.tensor([(7, 4, 1, 5)[row % 4] for row in range(count)])
    mask = (torch.arange(7) < lengths[:, None]).long()
    own = own.masked_fill(mask == 0, policy.processing_class.pad_token_id)
    images = [len(images_of(row)) for row in rows for _ in range(completions)]
    order = list(range(count)) if order is None else order
    carried = batch["pixel_values"].split(images) if "pixel_values" in batch else None
    shuffled = {
        "input_ids": torch.cat([batch["input_ids"], own], dim=1)[order],
        "attention_mask": torch.cat([batch["attention_mask"], mask], dim=1)[order],
    }
    if carried is not None:
        shuffled["pixel_values"] = torch.cat([carried[row] for row in order])
        shuffled["image_grid_thw"] = torch.ones(len(shuffled["pixel_values"]), 3, dtype=torch.long)
    return shuffled


SHUFFLED = [4, 0, 3, 7, 2, 5, 1, 8, 6]
PROMPTS = [one_image, two_images, no_image]


def prompts(family):
    return [make() for make in (PROMPTS if family != "paligemma" else [one_image, two_images, one_image])]


def with_sharing(policy, mode):
    policy.base_model.sharing.mode = mode
    return policy


def real(values, batch, keep):
    return values[:, -keep:][batch["attention_mask"][:, -keep:].bool()]


@pytest.mark.parametrize("family", ALL)
def test_log_probs_with_sharing_equal_those_without(family, policy_for):
    policy = policy_for(family)
    batch = group(policy, prompts(family), order=SHUFFLED)

    def run(mode):
        with_sharing(policy, mode)
        with torch.no_grad():
            logits = policy(**batch, use_cache=False, logits_to_keep=8).logits
            hidden = policy.base_model(**batch, use_cache=False).last_hidden_state
        assert hidden.shape[:2] == batch["input_ids"].shape
        return real(logits, batch, 8).log_softmax(-1), hidden[batch["attention_mask"].bool()]

    for found, expected in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(found, expected, atol=ATOL, rtol=1e-4)
    report = with_sharing(policy, True).sharing_report()
    assert (report["way"], report["not_shared"]) == ("packed", {})
    assert report["tokens_computed"] < 0.6 * report["tokens"]


def gradients(policy, batch, mode):
    with_sharing(policy, mode)
    logits = policy(**batch, use_cache=False, logits_to_keep=8).logits
    loss = real(logits.log_softmax(-1), batch, 8)[:, ::7].mean()
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}


def assert_equal_gradients(found, expected):
    assert set(found) == set(expected)
    largest = max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        scale = max(gradient.abs().max(), 1e-2 * largest)
        assert (found[name] - gradient).abs().max() < 1e-4 * scale, name


@pytest.mark.parametrize("family", ALL)
def test_gradients_of_all_weights_equal_those_without(family, policy_for):
    runs = []
    for mode in (True, False):
        policy = policy_for(family)
        runs.append(gradients(policy, group(policy, prompts(family), order=SHUFFLED), mode))
    (loss, found), (expected_loss, expected) = runs
    torch.testing.assert_close(loss, expected_loss, atol=1e-5, rtol=0)
    assert_equal_gradients(found, expected)


@pytest.mark.parametrize("checkpointing", [None, False, True], ids=["plain", "non-reentrant", "reentrant"])
@pytest.mark.parametrize("family", ALL)
def test_lora_gradients_equal_those_without(family, checkpointing, policy_for):
    """With gradient checkpointing the layers run again in the backward, on the same packing."""
    runs = []
    for mode in (True, False):
        torch.manual_seed(0)
        policy = policy_for(family)
        config = policy.lora_config(r=4, init_lora_weights=False)
        batch = group(policy, prompts(family), order=SHUFFLED)
        with_sharing(policy, mode)
        model = get_peft_model(policy, config).train()
        if checkpointing is not None:
            model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
            model.enable_input_require_grads()
        logits = model(**batch, use_cache=False, logits_to_keep=8).logits
        loss = real(logits.log_softmax(-1), batch, 8)[:, ::7].mean()
        loss.backward()
        grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        assert grads
        assert (policy.sharing_report()["tokens"] > 0) == mode
        runs.append((loss.detach(), grads))
    (loss, found), (expected_loss, expected) = runs
    torch.testing.assert_close(loss, expected_loss, atol=1e-5, rtol=0)
    assert_equal_gradients(found, expected)


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_equal_ids_with_different_images_share_nothing_but_what_comes_before(family, policy_for):
    """Mirrored images have as many tokens: only the tickets tell the rows apart."""
    policy = policy_for(family)
    mirrored = one_image()
    mirrored[0]["content"][0]["image"] = mirrored[0]["content"][0]["image"].transpose(0)
    batch = group(policy, [one_image(), mirrored], completions=2)
    with torch.no_grad():
        found = with_sharing(policy, True)(**batch, use_cache=False).logits
        expected = with_sharing(policy, False)(**batch, use_cache=False).logits
    mask = batch["attention_mask"].bool()
    torch.testing.assert_close(found[mask], expected[mask], atol=ATOL, rtol=1e-4)
    assert (found[0] - found[2]).abs().max() > 1e-2


@pytest.mark.parametrize("family", ALL)
def test_flush_left_pairs_share_their_prompt(family, policy_for):
    """DPO's batch: chosen rows, then rejected rows, right-padded."""
    policy = policy_for(family)
    batch = group(policy, prompts(family), completions=2, order=[0, 2, 4, 1, 3, 5])
    length = batch["input_ids"].shape[1]
    starts = batch["attention_mask"].argmax(dim=1)
    index = (torch.arange(length) + starts[:, None]).clamp(max=length - 1)
    inside = torch.arange(length) < batch["attention_mask"].sum(dim=1)[:, None]
    batch["input_ids"] = batch["input_ids"].gather(1, index).masked_fill(~inside, 0)
    batch["attention_mask"] = inside.long()
    with torch.no_grad():
        found = with_sharing(policy, True)(**batch, use_cache=False).logits
        expected = with_sharing(policy, False)(**batch, use_cache=False).logits
    torch.testing.assert_close(found[inside], expected[inside], atol=ATOL, rtol=1e-4)
    assert policy.sharing_report()["tokens_computed"] < 0.75 * policy.sharing_report()["tokens"]


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl", "qwen3_vl", "llava"])
def test_half_precision_is_as_near_to_the_truth_as_without_sharing(family, policy_for):
    policy = policy_for(family)
    batch = group(policy, prompts(family), order=SHUFFLED)

    def log_probs(mode):
        with_sharing(policy, mode)
        with torch.no_grad():
            return real(
                policy(**batch, use_cache=False, logits_to_keep=8).logits.float(), batch, 8
            ).log_softmax(-1)

    truth = log_probs(False)
    policy.to(torch.bfloat16)
    plain, shared = ((log_probs(mode) - truth).abs().mean() for mode in (False, True))
    assert 0 < shared < 1.1 * plain


def test_a_decoder_that_fails_the_self_check_goes_on_a_cache(policy_for, caplog):
    """As a model whose attention does not read its arguments as ours does."""
    policy = with_sharing(policy_for("internvl"), True)
    batch = group(policy, [one_image()])
    with torch.no_grad():
        expected = with_sharing(policy_for("internvl"), False)(**batch, use_cache=False).logits
    attention = policy.model.language_model.layers[1].self_attn
    attention.__class__ = type(attention)._stock_class
    mask = batch["attention_mask"].bool()
    for way in ("not in this forward", "on a cache"):
        with torch.no_grad():
            found = policy(**batch, use_cache=False).logits
        torch.testing.assert_close(found[mask], expected[mask], atol=ATOL, rtol=1e-4)
        report = policy.sharing_report()
        assert (report["tokens"] > 0) == (way == "on a cache")
        assert report["way"] == "cached"
        (reason,) = report["not_shared"]
        assert "self-check failed" in reason
    assert "self-check failed" in caplog.text


def test_a_decoder_that_fails_it_both_ways_shares_nothing(policy_for, caplog):
    """As a model that takes no cache, besides."""
    policy = with_sharing(policy_for("internvl"), True)
    batch = group(policy, [one_image()])
    with torch.no_grad():
        expected = with_sharing(policy_for("internvl"), False)(**batch, use_cache=False).logits
    attention = policy.model.language_model.layers[1].self_attn
    stock = type(attention)._stock_class

    class Forgetful(stock):
        def forward(self, *args, past_key_values=None, **kwargs):
            return super().forward(*args, **kwargs)

    attention.__class__ = Forgetful
    mask = batch["attention_mask"].bool()
    for _ in range(3):
        with torch.no_grad():
            found = policy(**batch, use_cache=False).logits
        torch.testing.assert_close(found[mask], expected[mask], atol=ATOL, rtol=1e-4)
    report = policy.sharing_report()
    assert (report["tokens"], report["way"]) == (0, None)
    assert "will not share their prompts" in caplog.text


def test_the_self_check_leaves_modes_and_random_numbers_alone(policy_for):
    policy = policy_for("internvl").train()
    policy.model.vision_tower.eval()
    modes = [module.training for module in policy.modules()]
    batch, state = group(policy, [one_image()]), torch.get_rng_state()
    with_sharing(policy, True)(**batch, use_cache=False).logits.mean().backward()
    assert policy.base_model.sharing.checked
    assert [module.training for module in policy.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_the_gate_leaves_batches_alone_that_have_little_in_common(policy_for):
    policy = policy_for("internvl")
    mirrored = one_image()
    mirrored[0]["content"][0]["image"] = mirrored[0]["content"][0]["image"].transpose(0)
    batch = tickets(policy.processing_class, [one_image(), mirrored])
    with torch.no_grad():
        policy(**batch, use_cache=False)
    report = policy.sharing_report()
    assert report["tokens"] == 0
    assert "could be saved" in next(iter(report["not_shared"]))


@pytest.mark.parametrize("wanted", ["output_hidden_states", "output_attentions"])
def test_outputs_of_every_layer_are_given_as_stock_gives_them(wanted, policy_for, bare_for):
    policy = policy_for("internvl")
    policy.set_attn_implementation("eager")
    batch = group(policy, [no_image()], completions=3)
    bare = bare_for("internvl")
    bare.set_attn_implementation("eager")
    ours = policy(**batch, use_cache=False, **{wanted: True})
    stock = bare(**batch, use_cache=False, **{wanted: True})
    key = wanted.removeprefix("output_")
    for found, expected in zip(ours[key], stock[key], strict=True):
        assert torch.equal(found, expected)


def test_rows_that_share_nothing_are_packed_without_padding(policy_for):
    policy = policy_for("internvl")
    batch = tickets(policy.processing_class, [one_image(), two_images(), no_image()])
    with torch.no_grad():
        found = policy(**batch, use_cache=False).logits
        report = policy.sharing_report()
        expected = with_sharing(policy, False)(**batch, use_cache=False).logits
    real_tokens = batch["attention_mask"].bool()
    torch.testing.assert_close(found[real_tokens], expected[real_tokens], atol=ATOL, rtol=1e-4)
    assert report["tokens_computed"] == int(real_tokens.sum()) < 0.85 * report["tokens"]


def test_a_caller_who_wants_a_cache_gets_it(policy_for):
    policy = policy_for("internvl")
    batch = group(policy, [one_image()])
    cache = policy(**batch, use_cache=True).past_key_values
    assert cache.get_seq_length() == batch["input_ids"].shape[1]


def test_an_unknown_mode_is_refused(checkpoint):
    from hf_vlm_rl import AutoVLMPolicy

    with pytest.raises(ValueError, match="'auto', True or False"):
        AutoVLMPolicy.from_pretrained(checkpoint("internvl"), sharing="always")


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
        length = output.past_key_values.get_seq_length()
        mask = torch.cat(
            [batch["attention_mask"], torch.ones(3, length + 3 - batch["input_ids"].shape[1])], dim=1
        )
        with torch.no_grad():
            outputs.append(
                policy(input_ids=further, attention_mask=mask, past_key_values=output.past_key_values)
            )
    torch.testing.assert_close(outputs[0].logits, outputs[1].logits, atol=1e-4, rtol=1e-4)
    cache = outputs[0].past_key_values
    own = sum(layer.keys.numel() + layer.prompt_keys.numel() for layer in cache.layers)
    assert own < sum(layer.keys.numel() for layer in outputs[1].past_key_values.layers)
    with pytest.raises(NotImplementedError, match="sharing=False"):
        cache.crop(-1)
    order = torch.tensor([2, 0])  # the second prompt is continued by nobody then
    last = []
    for output in outputs:
        output.past_key_values.reorder_cache(order)
        seen = torch.cat([mask, torch.ones(3, 1)], dim=1)[order]
        with torch.no_grad():
            last.append(
                policy(input_ids=further[:2, :1], attention_mask=seen, past_key_values=output.past_key_values)
            )
    torch.testing.assert_close(last[0].logits, last[1].logits, atol=1e-4, rtol=1e-4)
    assert len(cache.layers[0].prompt_keys) == 1


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
