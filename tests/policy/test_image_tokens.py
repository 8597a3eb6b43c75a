"""The tokens of images inside ids are given: likely for sure, and no loss is over them."""

import pytest
import torch

from tests.processing.prompts import CAT, COFFEE

FAMILIES = ("qwen2_5_vl", "internvl", "gemma3")


def batch(policy) -> dict[str, torch.Tensor]:
    """Two rows with images and one without, padded on the right."""
    tokenizer = policy.tokenizer
    rows = [("What is it?", [CAT]), ("Compare them, both.", [COFFEE, CAT]), ("Hello.", [])]
    prompts = [
        tokenizer.with_tickets({"prompt": [{"role": "user", "content": text}], "images": images})["prompt"]
        for text, images in rows
    ]
    encoded = tokenizer(
        tokenizer.apply_chat_template(prompts, tokenize=False),
        padding=True,
        padding_side="right",
        return_tensors="pt",
        add_special_tokens=False,
    )
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def places(policy, inputs) -> torch.Tensor:
    codec, placeholder = policy.processing_class.codec, policy.processing_class.state.placeholder_id
    return torch.tensor([codec.erase(ids) for ids in inputs["input_ids"].tolist()]) == placeholder


@pytest.mark.parametrize("kept", [0, 200])
@pytest.mark.parametrize("family", FAMILIES)
def test_their_log_probs_are_zero_and_have_no_gradient(family, kept, policy_for):
    policy = policy_for(family)
    inputs = batch(policy)
    kept = min(kept, inputs["input_ids"].shape[1])
    logits = policy(**inputs, **({"logits_to_keep": kept} if kept else {})).logits
    skipped = inputs["input_ids"].shape[1] - logits.shape[1]
    logps = logits[:, :-1].log_softmax(-1).gather(2, inputs["input_ids"][:, skipped + 1 :, None])[..., 0]
    at_images = places(policy, inputs)[:, skipped + 1 :]
    assert at_images.any()
    assert (logps[at_images] == 0).all()
    assert (logps[~at_images] < 0).all()
    logps[at_images].sum().backward()
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in policy.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_loss_of_whole_rows_is_that_of_their_text(family, policy_for):
    policy = policy_for(family)
    inputs = batch(policy)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    text = labels.masked_fill(places(policy, inputs), -100)
    with torch.no_grad():
        assert policy(**inputs, labels=labels).loss == policy(**inputs, labels=text).loss
    for row, ids in enumerate(inputs["input_ids"].tolist()):
        ours = policy.tokenizer.text_labels(ids)
        seen = inputs["attention_mask"][row].bool()
        assert torch.tensor(ours)[seen].tolist() == text[row][seen].tolist()


def test_labels_that_are_no_ids_are_refused(policy_for):
    policy = policy_for("qwen2_5_vl")
    inputs = batch(policy)
    with pytest.raises(ValueError, match="labels that are not the ids of their rows"):
        policy(**inputs, labels=torch.ones_like(inputs["input_ids"]))


def test_rows_of_encode_prompt_keep_the_logits_of_what_is_sampled(policy_for):
    policy = policy_for("qwen2_5_vl")
    conversation = [{"role": "user", "content": "What is it?"}]
    noted = policy.processing_class.encode_prompt(conversation, [CAT])["input_ids"]
    prompt = policy.tokenizer.with_tickets({"prompt": conversation, "images": [CAT]})["prompt"]
    ids = policy.tokenizer.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"]
    with torch.no_grad():
        one, other = (policy(input_ids=torch.tensor([row])).logits[0, -1] for row in (noted, ids))
    assert (one[list(policy.placeholder_ids)] == -1e4).all()
    assert (other[list(policy.placeholder_ids)] > -1e3).all()
    left = torch.tensor([token not in policy.placeholder_ids for token in range(len(one))])
    assert torch.equal(one[left], other[left])
