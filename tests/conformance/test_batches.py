"""Clauses 4, 5, 7 and 9: rows do not depend on their neighbours, padding or how they were made."""

import pytest
import torch

from .cases import ALL, mixture, one_image, tickets, two_images

# Other batch shapes take other summation orders in float32 kernels.
ATOL = 5e-5


def row_logits(policy, rows):
    batch = tickets(policy.processing_class, rows)
    with torch.no_grad():
        logits = policy(**batch).logits
    return [row[mask.bool()] for row, mask in zip(logits, batch["attention_mask"], strict=True)]


@pytest.mark.parametrize("family", ALL)
def test_a_mixed_batch_gives_the_rows_that_each_gives_alone(family, policy_for):
    """Left padding, neighbours with other numbers of images, and none at all change nothing."""
    policy = policy_for(family)
    rows = mixture(family)
    together = row_logits(policy, rows)
    assert len({len(row) for row in together}) > 1, "rows of one length would not be padded"
    for messages, expected in zip(rows, together, strict=True):
        torch.testing.assert_close(row_logits(policy, [messages])[0], expected, atol=ATOL, rtol=0)


@pytest.mark.parametrize("family", ALL)
def test_any_order_and_subset_of_rows_gives_the_same_rows(family, policy_for):
    policy = policy_for(family)
    rows = mixture(family)
    together = row_logits(policy, rows)
    for chosen in ([2, 0, 1], [1, 1, 0, 2, 1]):
        found = row_logits(policy, [rows[index] for index in chosen])
        for index, row in zip(chosen, found, strict=True):
            torch.testing.assert_close(row, together[index], atol=ATOL, rtol=0)


@pytest.mark.parametrize("family", ALL)
def test_the_image_changes_the_logits(family, policy_for):
    """Two rows with the same text and length, different images."""
    policy = policy_for(family)
    first, second = one_image(), one_image()
    image = first[0]["content"][0]["image"]
    second[0]["content"][0]["image"] = image.transpose(0)  # mirrored
    rows = row_logits(policy, [first, second])
    assert len(rows[0]) == len(rows[1])
    assert (rows[0][-1] - rows[1][-1]).abs().max() > 1e-2


@pytest.mark.parametrize("family", ALL)
def test_the_order_of_a_rows_images_matters(family, policy_for):
    policy = policy_for(family)
    straight, swapped = two_images(), two_images()
    blocks = swapped[0]["content"]
    blocks[0]["image"], blocks[1]["image"] = blocks[1]["image"], blocks[0]["image"]
    rows = row_logits(policy, [straight, swapped])
    assert (rows[0][-1] - rows[1][-1]).abs().max() > 1e-2


@pytest.mark.parametrize("family", ALL)
def test_log_probs_recomputed_after_generate_equal_those_while_sampling(family, policy_for):
    policy = policy_for(family)
    batch = tickets(policy.processing_class, mixture(family))
    torch.manual_seed(0)
    out = policy.generate(
        **batch,
        max_new_tokens=5,
        min_new_tokens=5,
        do_sample=True,
        top_k=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    sampled = torch.stack(out.logits, dim=1).log_softmax(-1)  # (B, 5, V), before any suppression
    mask = torch.cat([batch["attention_mask"], batch["attention_mask"].new_ones(len(sampled), 5)], dim=1)
    again = {**batch, "input_ids": out.sequences, "attention_mask": mask}
    with torch.no_grad():
        recomputed = policy(**again, logits_to_keep=6).logits[:, :-1].log_softmax(-1)
        hidden = policy.base_model(**again).last_hidden_state[:, -6:-1]
        from_backbone = policy.get_output_embeddings()(hidden).log_softmax(-1)
    torch.testing.assert_close(recomputed, sampled, atol=1e-4, rtol=0)
    torch.testing.assert_close(from_backbone, sampled, atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", ALL)
def test_generate_gives_the_bare_models_answer(family, policy_for, bare_for, native_processor_for):
    from .cases import native

    policy, bare = policy_for(family), bare_for(family)
    ours = tickets(policy.processing_class, [two_images()])
    stock = native(native_processor_for(family), [two_images()])
    settings = {"max_new_tokens": 6, "do_sample": False}
    # The bare model may sample placeholders, the policy never does.
    expected = bare.generate(**stock, **settings, suppress_tokens=list(policy.placeholder_ids))
    assert torch.equal(policy.generate(**ours, **settings), expected)
    assert torch.equal(policy.generate(ours["input_ids"], **without_ids(ours), **settings), expected)


def without_ids(batch):
    return {key: value for key, value in batch.items() if key != "input_ids"}


@pytest.mark.parametrize("family", ALL)
def test_generate_on_tickets_inside_the_ids_returns_the_prompt_as_given(family, policy_for):
    policy = policy_for(family)
    processing_class = policy.processing_class
    rows = [processing_class.encode_prompt(messages) for messages in mixture(family)]
    inside = processing_class.pad(rows, padding_side="left", return_tensors="pt")
    beside = tickets(processing_class, mixture(family))
    settings = {"max_new_tokens": 4, "do_sample": False}
    found, expected = policy.generate(**inside, **settings), policy.generate(**beside, **settings)
    width = inside["input_ids"].shape[1]
    assert torch.equal(found[:, :width], inside["input_ids"])
    assert torch.equal(found[:, width:], expected[:, width:])


@pytest.mark.parametrize("settings", [{"num_return_sequences": 2, "do_sample": True}, {"num_beams": 2}])
@pytest.mark.parametrize("family", ALL)
def test_placeholders_are_never_generated(family, settings, policy_for):
    policy = policy_for(family)
    head = policy.get_output_embeddings()
    bias = torch.zeros(head.out_features)
    bias[list(policy.placeholder_ids)] = 1e4  # they would win every step
    head.bias = torch.nn.Parameter(bias)
    batch = tickets(policy.processing_class, [one_image(), two_images()])
    sequences = policy.generate(**batch, max_new_tokens=4, **settings)
    completions = sequences[:, batch["input_ids"].shape[1] :]
    assert not torch.isin(completions, torch.tensor(policy.placeholder_ids)).any()


def test_paligemma_completions_do_not_see_what_follows(policy_for):
    """Its prompt attends in both directions; a completion token must not."""
    policy = policy_for("paligemma")
    batch = tickets(policy.processing_class, [one_image()])
    completion = torch.tensor([[20, 30, 40, 50]])
    ids = torch.cat([batch["input_ids"], completion], dim=1)
    changed = ids.clone()
    changed[:, -1] = 60
    carried = {key: batch[key] for key in ("pixel_values", "image_grid_thw")}
    with torch.no_grad():
        first, second = (policy(input_ids=row, **carried).logits for row in (ids, changed))
    assert torch.equal(first[:, :-1], second[:, :-1])


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_positions_that_count_tokens_do_not_replace_those_of_images(family, policy_for):
    """PPO knows nothing of images and passes 2-D positions, which the stock model would take for its own."""
    policy = policy_for(family)
    processing = policy.processing_class
    rows = [processing.encode_prompt(row) for row in mixture(family)]
    batch = processing.pad(rows, padding=True, padding_side="left", return_tensors="pt")
    mask = batch["attention_mask"]
    with torch.no_grad():
        counted = policy(**batch, position_ids=mask.cumsum(1) - mask).logits
        assert torch.equal(counted, policy(**batch).logits)
        shifted = policy(**batch, position_ids=mask.cumsum(1) - mask + 7).logits
    assert not torch.equal(shifted, counted)
