"""Clause 6: with prefix sharing on, values and gradients are those with it off."""

import pytest
import torch
from peft import get_peft_model

from hf_vlm_rl.compat import CACHE
from hf_vlm_rl.policy.sharing.visibility import AHEAD

from .cases import ALL, images_of, no_image, one_image, tickets, two_images
from .rounding import assert_equal_gradients

# Packed and padded batches sum in other orders; both are within this of a float64 run.
ATOL = 5e-5


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
    assert (report["packed"], report["not_shared"]) == (True, {})
    assert report["tokens_computed"] < 0.6 * report["tokens"]


def gradients(policy, batch, mode):
    with_sharing(policy, mode)
    logits = policy(**batch, use_cache=False, logits_to_keep=8).logits
    loss = real(logits.log_softmax(-1), batch, 8)[:, ::7].mean()
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("family", ["gemma3", "paligemma"])
def test_text_without_token_types_is_read_as_stock_reads_it(family, padding, policy_for, bare_for):
    policy, stock = with_sharing(policy_for(family), True), bare_for(family)
    ids = torch.arange(100, 112).repeat(3, 1)
    ids[1:, 9:] += torch.tensor([[20], [40]])
    mask = torch.ones_like(ids)
    mask[0, len(ids[0]) - padding :] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    with torch.no_grad():
        found, expected = policy(**inputs).logits[mask.bool()], stock(**inputs).logits[mask.bool()]
    torch.testing.assert_close(found[:, :100], expected[:, :100], atol=ATOL, rtol=1e-4)
    report = policy.sharing_report()
    # Without a mask, stock PaliGemma's text is read in both directions.
    shared = padding > 0 or family != "paligemma"
    assert report["tokens_computed"] == (18 - padding if shared else 0)
    assert list(report["not_shared"]) == ([] if shared else [AHEAD])


@pytest.mark.parametrize("family", ALL)
def test_gradients_of_all_weights_equal_those_without(family, policy_for):
    runs = []
    for mode in (True, False):
        policy = policy_for(family)
        runs.append(gradients(policy, group(policy, prompts(family), order=SHUFFLED), mode))
    (loss, found), (expected_loss, expected) = runs
    torch.testing.assert_close(loss, expected_loss, atol=1e-5, rtol=0)
    assert_equal_gradients(policy, found, expected)


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
    assert_equal_gradients(policy, found, expected)


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


def test_a_decoder_that_fails_the_self_check_shares_nothing(policy_for, caplog):
    """As a model whose attention does not read its arguments as ours does."""
    policy = with_sharing(policy_for("internvl"), True)
    batch = group(policy, [one_image()])
    with torch.no_grad():
        expected = with_sharing(policy_for("internvl"), False)(**batch, use_cache=False).logits
    attention = policy.model.language_model.layers[1].self_attn
    attention.__class__ = type(attention)._stock_class
    mask = batch["attention_mask"].bool()
    for _ in range(2):
        with torch.no_grad():
            found = policy(**batch, use_cache=False).logits
        torch.testing.assert_close(found[mask], expected[mask], atol=ATOL, rtol=1e-4)
    report = policy.sharing_report()
    assert (report["tokens"], report["packed"]) == (0, False)
    ((reason, forwards),) = report["not_shared"].items()
    assert ("self-check failed" in reason, forwards) == (True, 2)
    assert caplog.text.count("Rows do not share their prompts from here on") == 1


def test_the_self_check_leaves_modes_and_random_numbers_alone(policy_for):
    policy = policy_for("internvl").train()
    policy.model.vision_tower.eval()
    modes = [module.training for module in policy.modules()]
    batch, state = group(policy, [one_image()]), torch.get_rng_state()
    with_sharing(policy, True)(**batch, use_cache=False).logits.mean().backward()
    assert policy.sharing_report()["tokens"]
    assert [module.training for module in policy.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_matrix_products_of_less_precision_share_all_the_same(family, policy_for):
    policy = policy_for(family)
    batch = group(policy, prompts(family))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.no_grad():
            with_sharing(policy, True)(**batch, use_cache=False)
            policy.generate(**batch, max_new_tokens=1)
    finally:
        torch.set_float32_matmul_precision(before)
    report = policy.sharing_report()
    assert (report["packed"], report["not_shared"]) == (True, {})


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
    cache = policy(**batch, use_cache=True)[CACHE]
    assert cache.get_seq_length() == batch["input_ids"].shape[1]


def test_a_cache_may_come_under_the_name_that_older_transformers_give_it(policy_for):
    policy = policy_for("internvl")
    batch = group(policy, [one_image()])
    seen = torch.cat([batch["attention_mask"], torch.ones_like(batch["attention_mask"][:, :1])], dim=1)
    logits = []
    with torch.no_grad():
        for name in (CACHE, "past_key_values"):
            cache = policy(**batch, use_cache=True)[CACHE]
            step = {"input_ids": batch["input_ids"][:, :1] * 0 + 9, "attention_mask": seen, name: cache}
            logits.append(policy(**step).logits)
            assert cache.get_seq_length() == seen.shape[1]
    assert torch.equal(*logits)


def test_an_unknown_mode_is_refused(checkpoint):
    from hf_vlm_rl import AutoVLMPolicy

    with pytest.raises(ValueError, match="'auto', True or False"):
        AutoVLMPolicy.from_pretrained(checkpoint("internvl"), sharing="always")
