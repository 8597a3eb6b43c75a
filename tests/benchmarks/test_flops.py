"""The formula of operations, against torch's own count of what an update runs."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.flops import attention_flops, linear_flops, measured_flops, update_flops
from benchmarks.models import pair


@pytest.mark.parametrize("name", ["tiny-internvl", "tiny-qwen2_5_vl"])
def test_the_formula_counts_what_torch_counts(name):
    (stock, _), (policy, _) = pair(name, 1, False, "cpu")
    stock.get_base_model().set_attn_implementation("eager")
    prompt, completion, group = 40, 8, 3
    ids = torch.randint(5, 300, (group, prompt + completion))
    with FlopCounterMode(display=False) as counter:
        logits = stock(input_ids=ids, use_cache=False, logits_to_keep=completion + 1).logits
        logits.mean().backward()
    model = policy.get_base_model()
    said = update_flops(model, prompt, completion, group, once=False)
    # Eager attention computes all pairs, the formula counts those that are seen.
    config = model.base_model.decoder.config
    length = prompt + completion
    unseen = attention_flops(config, group * (length * length - length * (length + 1) // 2))
    # The first layers' inputs have no gradient: torch leaves out what nothing needs.
    assert counter.get_total_flops() == pytest.approx(said + unseen, rel=0.08)


def test_unique_tokens_count_the_prompt_once():
    model = pair("tiny-internvl", 1, False, "cpu")[1][0].get_base_model()
    once, repeated = (update_flops(model, 100, 10, 8, once) for once in (True, False))
    # 180 tokens for 880, besides the head, which runs on completions alone.
    assert 0.19 < once / repeated < 0.45
    assert update_flops(model, 100, 10, 1, True) == update_flops(model, 100, 10, 1, False)


def test_a_trained_weight_counts_for_half_as_much_again():
    layer = torch.nn.Linear(4, 5)
    trained = linear_flops(layer, 10)
    assert trained == 6 * 4 * 5 * 10
    assert linear_flops(layer.requires_grad_(False), 10) == trained * 2 / 3


def test_a_machine_multiplies_faster_than_nothing():
    assert measured_flops("cpu", torch.float32, 64) > 1e6
