"""Clause 6 with FlexAttention, where a CPU has it: forwards without gradients give the stock values."""

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from hf_vlm_rl.policy.sharing import flex, kernel, visibility

from .cases import ALL
from .test_trees import TURNS, batches

# Log-probs in float32 on one thread; recurrent layers carry on the last bits of their states.
ATOL, ATOL_MIXED = 1e-5, 2e-4


def log_probs(model, batch: dict) -> torch.Tensor:
    with torch.no_grad():
        logits = model(**batch, use_cache=False).logits.clamp(min=-1e4)
    return logits[batch["attention_mask"].bool()].log_softmax(-1)


@pytest.fixture
def made(monkeypatch) -> list:
    """The blocks that are made."""
    blocks = []
    stock = visibility.find_blocks

    def find_blocks(layout, seen):
        blocks.append(stock(layout, seen))
        return blocks[-1]

    monkeypatch.setattr(visibility, "find_blocks", find_blocks)
    return blocks


@pytest.mark.parametrize("model_type", ALL)
def test_values_are_those_of_the_stock_model(model_type, twins, made):
    policy = twins.policy
    backbone = policy.base_model
    backbone.sharing.mode = True
    stock, ours = batches(twins, TURNS, left=True)
    expected = log_probs(twins.bare, stock)
    policy.set_packed_attention("flex")
    log_probs(policy, ours)  # with the checks before first use
    made.clear()
    before = policy.sharing_report()["packed_attention"]["flex"]
    found = log_probs(policy, ours)
    report = policy.sharing_report()
    atol = ATOL_MIXED if report["way"] == "mixed" else ATOL
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)
    assert report["not_flex"] == {}
    assert set(report["packed_attention"]) == {"flex"}
    layers = report["packed_attention"]["flex"] - before
    kinds = set(getattr(backbone.decoder.config, "layer_types", None) or ["full_attention"])
    attentive = {kind for kind in kinds if kind.endswith("attention") and kind != "linear_attention"}
    assert len(made) == min(len(attentive), layers)


def short_ones_differ(query, *others, **keywords):
    attended = flex_attention(query, *others, **keywords)
    return attended * 1.2 if query.shape[2] <= 256 else attended


@pytest.mark.parametrize("model_type", ["internvl"])
def test_a_decoder_that_differs_with_it_uses_the_loop(model_type, twins, monkeypatch):
    """Its own check has longer rows than the decoder's."""
    monkeypatch.setattr(flex, "_kernels", {})
    monkeypatch.setattr(kernel, "_disagreements", {})
    monkeypatch.setattr(flex, "flex_attention", short_ones_differ)
    policy = twins.policy.set_packed_attention("flex")
    policy.base_model.sharing.mode = True
    stock, ours = batches(twins, TURNS, left=True)
    found, expected = log_probs(policy, ours), log_probs(twins.bare, stock)
    torch.testing.assert_close(found, expected, atol=ATOL, rtol=0)
    report = policy.sharing_report()
    (reason,) = report["not_flex"]
    assert reason.startswith("the self-check failed: on ")
    assert report["way"] == "packed"
    assert report["tokens"] > report["tokens_computed"] > 0
    assert report["not_shared"] == {}
