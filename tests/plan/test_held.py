"""Weights, adapter, optimizer and cache are counted exactly."""

import dataclasses

import pytest
import torch
from peft import get_peft_model
from torch.utils._pytree import tree_leaves

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.compat import CACHE
from hf_vlm_rl.families.tiny import FAMILIES
from hf_vlm_rl.plan.memory import estimate
from hf_vlm_rl.plan.settings import Run, Settings
from hf_vlm_rl.plan.step import make_prompt
from hf_vlm_rl.plan.weights import four_bit_bytes, optimizer_bytes, weight_bytes
from tests.tiny import recipe

RUN = Run(image=(112, 56), text=8, completion=16, group=4)
SETTINGS = Settings("bf16", True, rows=4, accumulation=1, group=4)


def real_model(family, dtype):
    made = recipe(family)
    policy = AutoVLMPolicy.from_config(made.config, made.processor, dtype=dtype)
    return get_peft_model(policy, policy.lora_config(r=16))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_planned_and_its_weights_are_those_of_a_real_model(read, family):
    memory = estimate(read(family), RUN, SETTINGS)
    model = real_model(family, torch.bfloat16)
    held = {id(t): t.nbytes for t in [*model.parameters(), *model.buffers()]}
    assert sum(memory.weights.values()) == sum(held.values())
    assert memory.gradients == sum(p.nbytes for p in model.parameters() if p.requires_grad)
    assert memory.update > 0


def test_the_optimizer_state_is_that_of_a_real_step():
    model = real_model("internvl", torch.float32)
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(trained)
    optimizer.step()
    real = sum(t.nbytes for state in optimizer.state.values() for t in state.values())
    assert optimizer_bytes(model) == real


def test_four_bit_weights_are_those_of_bitsandbytes():
    functional = pytest.importorskip("bitsandbytes.functional")  # an optional dependency
    for shape in ((64, 128), (100, 60)):
        weight, state = functional.quantize_4bit(
            torch.randn(shape), quant_type="nf4", compress_statistics=True
        )
        nested = state.state2
        parts = [weight, state.absmax, state.code, state.offset, nested.absmax, nested.code]
        assert four_bit_bytes(shape[0] * shape[1]) == sum(part.nbytes for part in parts)


def test_four_bits_are_for_the_decoder_alone():
    model = real_model("internvl", torch.bfloat16)
    plain, quantised = weight_bytes(model, False), weight_bytes(model, True)
    assert {part for part in plain if quantised[part] != plain[part]} == {"decoder"}


def test_the_cache_holds_a_shared_prompt_once(read):
    rollout = estimate(read("internvl"), RUN, SETTINGS).rollout
    prompt = make_prompt(real_model("internvl", torch.bfloat16).processing_class, RUN)
    text = recipe("internvl").config.text_config
    width = text.hidden_size // text.num_attention_heads
    token = 2 * 2 * text.num_hidden_layers * text.num_key_value_heads * width  # keys and values, 2 bytes
    assert rollout.cache == token * (prompt.tokens + 4 * RUN.completion)
    assert rollout.stock == token * 4 * (prompt.tokens + RUN.completion)


@pytest.mark.parametrize("model_type", ["qwen3_5", "lfm2_vl"])
def test_the_cache_of_a_hybrid_decoder_is_that_of_a_real_model(model_type, read):
    rollout = estimate(read(model_type), RUN, SETTINGS).rollout
    model = real_model(model_type, torch.bfloat16)
    prompt = make_prompt(model.processing_class, RUN)
    decoder = model.get_base_model().get_submodule(model.family.language)
    ids = torch.ones(4, prompt.tokens + RUN.completion, dtype=torch.long)
    with torch.no_grad():
        layers = decoder(input_ids=ids, use_cache=True)[CACHE].layers
    held = [leaf for layer in layers for leaf in tree_leaves(vars(layer)) if isinstance(leaf, torch.Tensor)]
    assert rollout.cache == rollout.stock == sum(tensor.nbytes for tensor in held)


def test_zero3_divides_what_ddp_repeats(read):
    one = estimate(read("internvl"), RUN, SETTINGS)
    two = estimate(read("internvl"), Run(**vars(RUN) | {"gpus": 2, "sharding": "zero3"}), SETTINGS)
    assert two.weights["decoder"] == one.weights["decoder"] // 2
    assert two.optimizer * 2 < one.optimizer  # adapters have the weights' dtype under ZeRO-3


def test_training_all_weights_has_a_reference_only_with_a_kl_term(read):
    free = estimate(read("internvl"), Run(**vars(RUN) | {"rank": None}), SETTINGS)
    bound = estimate(read("internvl"), Run(**vars(RUN) | {"rank": None, "beta": 0.1}), SETTINGS)
    assert free.reference == 0
    assert bound.reference == sum(bound.weights.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_has_as_many_images_as_the_run(read, family):
    runs = [dataclasses.replace(RUN, images=images) for images in (0, 1, 2)]
    none, one, two = [estimate(read(family), run, SETTINGS).image_tokens for run in runs]
    assert none == 0
    # LLaVA-OneVision takes one image in tiles, and several without.
    assert two == 2 * one > 0 or family == "llava_onevision"
    assert two > 0
