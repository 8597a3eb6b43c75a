"""All and active parameters, against published checkpoints; on the meta device."""

import pytest
import torch
from transformers import AutoConfig

from hf_vlm_rl.families.tiny import auto_class
from hf_vlm_rl.plan.report import parameters
from hf_vlm_rl.plan.weights import parameter_counts
from hf_vlm_rl.policy.trained.experts import fused_experts
from tests.plan.published import PUBLISHED

# "1T" has 1.027T, "28B" 29.4B.
ROUNDED = 0.06
# Makers round down, and some leave out the embeddings: "A12B" has 13.4B with them.
ROUNDED_ACTIVE = 0.16


def on_meta(published):
    sizes = {"text_config": published.text, "vision_config": published.vision}
    config = AutoConfig.for_model(published.model_type, **sizes, **(published.top or {}))
    with torch.device("meta"):
        return auto_class(config).from_config(config)


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_those_of_the_model_card(name):
    published = PUBLISHED[name]
    model = on_meta(published)
    total, active = parameter_counts(model, published.language)
    if published.exact:
        assert total == published.exact
    assert total == pytest.approx(published.total * 1e9, rel=ROUNDED)
    if published.active is None:
        assert active == total
        return
    head = model.get_output_embeddings().weight
    decoder = {id(weight) for weight in model.get_submodule(published.language).parameters()} | {id(head)}
    tower = sum(weight.numel() for weight in model.parameters() if id(weight) not in decoder)
    assert active - tower == pytest.approx(published.active * 1e9, rel=ROUNDED_ACTIVE)


def test_a_token_meets_the_experts_for_text_or_those_for_images():
    published = PUBLISHED["baidu/ERNIE-4.5-VL-28B-A3B-PT"]
    model = on_meta(published)
    total, active = parameter_counts(model, published.language)
    experts = fused_experts(model, published.language)
    text = sum(weight.numel() for name, weight in experts.items() if ".text_moe." in name)
    fused = sum(weight.numel() for weight in experts.values())
    assert total - active == fused - text * 6 // 64


def test_how_many_experts_are_chosen_may_be_unknown():
    model = on_meta(PUBLISHED["Qwen/Qwen3-VL-30B-A3B-Instruct"])
    for module in model.modules():
        if hasattr(module, "top_k"):
            del module.top_k
    total, active = parameter_counts(model, "model.language_model")
    assert active is None
    assert parameters(total, active) == "31,070,754,032, an unknown part of them active for a token"
