"""A head that prefers placeholders over everything else: none is ever sampled."""

import pytest
import torch

from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import cup, grpo, mixture, woman

pytestmark = pytest.mark.trl

TURN = {"tokenize": True, "return_dict": True, "add_generation_prompt": True}


def messages(text, *images):
    blocks = [{"type": "image", "image": image} for image in images]
    return [{"role": "user", "content": [*blocks, {"type": "text", "text": text}]}]


def prefer(model, ids) -> None:
    """Raise the logits of `ids` far above all others."""

    def hook(module, args, output):
        output[..., list(ids)] += 1e4
        return output

    model.get_output_embeddings().register_forward_hook(hook)


@pytest.fixture
def biased(policy_for):
    def make(family):
        policy = policy_for(family)
        prefer(policy, policy.placeholder_ids)
        return policy

    return make


@pytest.fixture
def inputs(policy_for):
    def make(family):
        processing = policy_for(family).processing_class
        rows = [messages("What is it?", woman()), messages("Compare the two pictures.", cup(), woman())]
        return processing.apply_chat_template(rows, padding=True, return_tensors="pt", **TURN)

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bare_model_samples_them(family, biased, bare_for, native_processor_for):
    bare, policy = bare_for(family), biased(family)
    prefer(bare, policy.placeholder_ids)
    native = native_processor_for(family).apply_chat_template(
        [messages("What is it?", woman())], return_tensors="pt", **TURN
    )
    output = bare.generate(**native, max_new_tokens=1, do_sample=False)
    assert output[0, -1].item() in policy.placeholder_ids


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "how",
    [
        {"do_sample": False},
        {"do_sample": True},
        {"do_sample": True, "top_k": 2, "num_return_sequences": 3},
        {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
    ],
    ids=["greedy", "sampling", "several samples", "beams"],
)
def test_generate_never_gives_one(how, family, biased, inputs):
    policy, given = biased(family), inputs(family)
    output = policy.generate(**given, **how, max_new_tokens=4)
    rows, length = given["input_ids"].shape
    assert len(output) == rows * how.get("num_return_sequences", 1)
    assert not torch.isin(output[:, length:], torch.tensor(policy.placeholder_ids)).any()
    assert torch.equal(output[:: len(output) // rows, :length], given["input_ids"])


@pytest.mark.parametrize("family", FAMILIES)
def test_no_completion_of_a_grpo_rollout_has_one(family, biased, tmp_path):
    policy = biased(family)
    sampled = []

    def reward(completion_ids, **columns):
        sampled.extend(completion_ids)
        return [float(len(set(ids))) for ids in completion_ids]

    grpo(policy, mixture(family), tmp_path, reward=reward, peft=policy.lora_config(r=4), max_steps=1).train()
    assert len(sampled) == 6
    assert not set(policy.placeholder_ids) & {token for ids in sampled for token in ids}


@pytest.mark.parametrize("family", FAMILIES)
def test_tickets_inside_the_ids_continue_as_tickets_beside_them(family, policy_for, inputs):
    policy, beside = policy_for(family), inputs(family)
    processing = policy.processing_class
    rows = [messages("What is it?", woman()), messages("Compare the two pictures.", cup(), woman())]
    inside = processing.pad([processing.encode_prompt(row) for row in rows], return_tensors="pt")
    assert inside["input_ids"].shape == beside["input_ids"].shape
    assert not torch.equal(inside["input_ids"], beside["input_ids"])
    length = beside["input_ids"].shape[1]
    expected = policy.generate(**beside, max_new_tokens=6, do_sample=False)
    given = policy.generate(**inside, max_new_tokens=6, do_sample=False)
    assert torch.equal(given[:, length:], expected[:, length:])
    assert torch.equal(given[:, :length], inside["input_ids"])
