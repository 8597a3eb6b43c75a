"""LoRA's dropout under sharing: the rows share the prompt's noise, each row is distributed as without it."""

import math

import pytest
import torch
from peft import get_peft_model

from tests.images import photo
from tests.trainers.runs import TWO

ROWS, TOKENS, DRAWS = 3, 6, 250


@pytest.mark.slow
@pytest.mark.parametrize("family", TWO)
def test_each_rows_log_probability_has_the_mean_and_variance_of_the_stock_path(family, policy_for):
    policy = policy_for(family)
    processing = policy.processing_class
    question = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]
    text = processing.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    image = photo("cat", (112, 112))
    batch = dict(processing(text=[text] * ROWS, images=[[image]] * ROWS, return_tensors="pt"))
    torch.manual_seed(5)
    model = get_peft_model(policy, policy.lora_config(r=4, lora_dropout=0.1)).train()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zero at first: dropout would change nothing
            torch.nn.init.normal_(parameter, std=0.1)
    completion = torch.randint(5, 60, (ROWS, TOKENS))
    batch["input_ids"] = torch.cat([batch["input_ids"], completion], dim=1)
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    drawn = {}
    for sharing in (False, True):
        policy.base_model.sharing.mode = sharing
        drawn[sharing] = torch.stack([log_probs(model, batch, completion) for _ in range(DRAWS)])
    report = policy.sharing_report()
    assert report["not_shared"] == {}
    assert report["tokens"] == DRAWS * batch["input_ids"].numel()
    assert report["tokens_computed"] < report["tokens"]
    plain, shared = drawn[False], drawn[True]
    spread = math.sqrt(2 / DRAWS) * plain.std(dim=0)
    assert (plain.std(dim=0) > 1e-3).all()
    assert ((shared.mean(dim=0) - plain.mean(dim=0)).abs() < 4 * spread).all()
    # The ratio of two variances of DRAWS normal values has a relative standard error of 2 / sqrt(DRAWS).
    assert ((shared.var(dim=0) / plain.var(dim=0)).log().abs() < 4 * 2 / math.sqrt(DRAWS)).all()
    # What sharing does change: the rows' first tokens are predicted from the prompt, with one noise for all.
    for sharing, alike in ((False, False), (True, True)):
        policy.base_model.sharing.mode = sharing
        with torch.no_grad():
            first = model(**batch, use_cache=False).logits[:, -TOKENS - 1]
        assert torch.allclose(first[0], first[1], atol=1e-5) is alike


@torch.no_grad()
def log_probs(model, batch, completion) -> torch.Tensor:
    """(ROWS,): one draw of each completion's log-probability."""
    logits = model(**batch, use_cache=False).logits[:, -TOKENS - 1 : -1]
    return logits.log_softmax(-1).gather(-1, completion[..., None]).sum(dim=(1, 2))
