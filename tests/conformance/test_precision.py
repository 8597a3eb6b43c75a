"""Rows share in the precision that trainers use: float32 weights under bfloat16 autocast, TRL's default."""

import pytest
import torch
from transformers.utils.import_utils import enable_tf32

from tests.conformance.test_sharing import SHUFFLED, group, prompts, real, with_sharing

KINDS = ["internvl", "qwen2_5_vl", "gemma3", "paligemma", "qwen3_vl", "llava"]


def log_probs_and_gradients(policy, batch, autocast):
    policy.train()
    policy.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = policy(**batch, use_cache=False, logits_to_keep=8).logits
    log_probs = real(logits.float().log_softmax(-1), batch, 8)
    log_probs[:, ::7].mean().backward()
    gradients = {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}
    return log_probs.detach(), gradients


@pytest.mark.parametrize("family", KINDS)
def test_rows_share_under_autocast_as_near_to_the_truth_as_without(family, policy_for):
    """The policy is fresh, so the comparison with stock runs inside this forward's autocast."""
    runs = {}
    for name, mode, autocast in (("truth", False, False), ("plain", False, True), ("shared", True, True)):
        policy = with_sharing(policy_for(family), mode)
        batch = group(policy, prompts(family), order=SHUFFLED)
        runs[name] = log_probs_and_gradients(policy, batch, autocast)
    report = policy.sharing_report()
    assert (report["packed"], report["not_shared"]) == (True, {})
    assert report["tokens_computed"] < 0.6 * report["tokens"]
    truth, plain, shared = (runs[name][0] for name in ("truth", "plain", "shared"))
    assert 0 < (shared - truth).abs().mean() < 1.2 * (plain - truth).abs().mean()
    expected, stock, found = (runs[name][1] for name in ("truth", "plain", "shared"))
    assert set(found) == set(stock)

    def distance(gradients):
        return sum((gradients[name] - expected[name]).square().sum() for name in expected).sqrt()

    size = sum(gradient.square().sum() for gradient in expected.values()).sqrt()
    assert 0 < distance(found) < 1.2 * distance(stock) < 0.2 * size


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_rows_share_and_sample_after_tf32_was_asked_for(family, policy_for):
    """`TrainingArguments(tf32=True)` calls this; torch's older question of precision raises from then on."""
    policy = with_sharing(policy_for(family), True)
    batch = group(policy, prompts(family), order=SHUFFLED)
    before = torch.backends.fp32_precision
    enable_tf32(True)
    try:
        with torch.no_grad():
            policy(**batch, use_cache=False)
            policy.generate(**batch, max_new_tokens=2)
    finally:
        torch.backends.fp32_precision = before
        enable_tf32.cache_clear()
    report = policy.sharing_report()
    assert report["tokens_computed"] < report["tokens"]
    assert report["prompts_prefilled"] < report["prompts"] or report["not_shared"] == {}
