"""A policy that trains and never sees an image says so once; nothing else is told."""

import warnings

import pytest
import torch
from peft import get_peft_model

from hf_vlm_rl.policy.blind import PATIENCE
from tests.images import photo
from tests.processing.prompts import CAT, user
from tests.trainers.runs import TWO

TOLD = "have no image"


def batches(policy, kind: str, native_processor_for) -> dict[str, torch.Tensor]:
    processing = policy.processing_class
    if kind == "inside the ids":
        return {
            "input_ids": torch.tensor([processing.encode_prompt(user("What is it?"), [CAT])["input_ids"]])
        }
    if kind == "text":
        return {"input_ids": torch.tensor([processing.encode_prompt(user("Say hello."), [])["input_ids"]])}
    conversation = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
    text = processing.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    made = processing if kind == "tickets" else native_processor_for(policy.family.model_type)
    return dict(made(text=[text], images=[[photo("cat", (112, 112))]], return_tensors="pt"))


def told(model, batch, times: int) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            model(**batch)
    return [str(warning.message) for warning in caught if TOLD in str(warning.message)]


@pytest.mark.parametrize("adapted", [False, True], ids=["all weights", "adapter"])
@pytest.mark.parametrize("family", TWO)
def test_training_on_text_alone_is_told_once(adapted, family, policy_for, native_processor_for):
    policy = policy_for(family)
    batch = batches(policy, "text", native_processor_for)
    model = get_peft_model(policy, policy.lora_config(r=4)) if adapted else policy
    model.train()
    assert told(model, batch, PATIENCE - 1) == []
    (message,) = told(model, batch, 2 * PATIENCE)
    assert "docs/trainers.md" in message
    assert "If these rows have no images, all is well" in message


@pytest.mark.parametrize("kind", ["tickets", "inside the ids", "pixels"])
@pytest.mark.parametrize("family", TWO)
def test_one_image_in_the_first_batches_is_enough(kind, family, policy_for, native_processor_for):
    policy = policy_for(family).train()
    text = batches(policy, "text", native_processor_for)
    assert told(policy, text, PATIENCE - 1) == []
    assert told(policy, batches(policy, kind, native_processor_for), 1) == []
    assert told(policy, text, 2 * PATIENCE) == []


@pytest.mark.parametrize("family", TWO)
def test_batches_that_train_nothing_do_not_count(family, policy_for, native_processor_for):
    policy = policy_for(family)
    text = batches(policy, "text", native_processor_for)
    assert told(policy, text, 2 * PATIENCE) == []  # in eval mode
    with torch.no_grad():
        assert told(policy.train(), text, 2 * PATIENCE) == []
