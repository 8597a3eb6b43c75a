"""Clause 16: whatever changes what an image's features are made of is seen, by whatever way it changes."""

import copy
import functools

import pytest
import torch
from peft import get_peft_model

from hf_vlm_rl import AutoVLMPolicy, ImageError, TicketError
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets

from .cases import ALL, images_of, native, one_image, tickets, two_images, user

ATOL = 2e-5


def logits(model, batch, **options):
    with torch.no_grad():
        return model(**batch, **options).logits


def tower(policy):
    return policy.get_submodule(policy.family.vision[0])


def scaled(policy):
    for parameter in tower(policy).parameters():
        parameter.data.mul_(1.5)


def averaged(policy):
    """As EMA and TRL's `SyncRefModelCallback` write."""
    for parameter in tower(policy).parameters():
        parameter.data.copy_(0.5 * parameter.data)


def shifted_in_place(policy):
    for parameter in tower(policy).parameters():
        parameter.data.mul_(0.6).add_(0.4 * parameter.data.flip(0))


def rounded(policy):
    policy.to(torch.bfloat16).to(torch.float32)


def one_column(policy):
    for parameter in tower(policy).parameters():
        if parameter.ndim == 2:
            parameter.data[:, 1] += 0.5


def one_element(policy):
    weight = max((each for each in tower(policy).parameters() if each.ndim == 2), key=torch.numel)
    weight.data[1, 3] += 5.0


def rows_swapped(policy):
    for parameter in tower(policy).parameters():
        parameter.data.copy_(parameter.data.flip(0))


def other_activations(policy):
    for module in list(tower(policy).modules()):
        for name, child in list(module.named_children()):
            if not list(child.parameters()) and "act" in name:
                setattr(module, name, torch.nn.Tanh())


def other_attributes(policy):
    for module in tower(policy).modules():
        for name in ("eps", "variance_epsilon"):
            if hasattr(module, name):
                setattr(module, name, 2.0)


def patched_forward(policy):
    linear = next(each for each in tower(policy).modules() if isinstance(each, torch.nn.Linear))
    linear.forward = lambda states: 2 * torch.nn.functional.linear(states, linear.weight, linear.bias)


def patched_features(policy):
    encode = policy.base_model.get_image_features

    def doubled(*args, **kwargs):
        output = encode(*args, **kwargs)
        features = output.pooler_output
        output.pooler_output = 2 * features if torch.is_tensor(features) else [2 * each for each in features]
        return output

    policy.base_model.get_image_features = functools.wraps(encode)(doubled)


EDITS = [scaled, averaged, shifted_in_place, rounded, one_column, one_element, rows_swapped]
EDITS += [other_activations, other_attributes, patched_forward, patched_features]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("family", ALL)
def test_an_edit_of_a_frozen_tower_is_seen(family, edit, policy_for):
    policy = policy_for(family).requires_grad_(False)
    batch = tickets(policy.processing_class, [one_image(), two_images()])
    before = logits(policy, batch)
    encoded = policy.sharing_report()["images_encoded"]
    logits(policy, batch)
    assert policy.sharing_report()["images_encoded"] == encoded
    edit(policy)
    found = logits(policy, batch)
    policy.base_model.feature_cache.clear()
    expected = logits(policy, batch)
    assert (expected - before).abs().max() > 1e-3
    torch.testing.assert_close(found, expected, atol=ATOL, rtol=0)


def test_a_merged_adapter_of_the_tower_is_seen(policy_for):
    policy = policy_for("internvl")
    batch = tickets(policy.processing_class, [one_image()])
    before = logits(policy.requires_grad_(False), batch)
    adapted = get_peft_model(policy, policy.lora_config(target="all", init_lora_weights=False))
    merged = adapted.merge_and_unload()
    expected = logits(copy.deepcopy(merged), batch)
    assert (expected - before).abs().max() > 1e-3
    torch.testing.assert_close(logits(merged, batch), expected, atol=ATOL, rtol=0)


def test_a_hook_on_the_tower_runs_in_every_forward(policy_for):
    policy = policy_for("internvl").requires_grad_(False)
    batch = tickets(policy.processing_class, [one_image()])
    before = logits(policy, batch)
    calls = []
    hook = tower(policy).encoder.register_forward_hook(lambda module, args, output: calls.append(1))
    for _ in range(2):
        assert torch.equal(logits(policy, batch), before)
    assert len(calls) == 2
    hook.remove()
    logits(policy, batch)
    assert len(calls) == 2


def test_a_hook_on_all_modules_runs_in_every_forward(policy_for):
    policy = policy_for("internvl").requires_grad_(False)
    batch = tickets(policy.processing_class, [one_image()])
    logits(policy, batch)
    calls = []

    def count_attention(module, args, output):
        calls.append(type(module).__name__)

    hook = torch.nn.modules.module.register_module_forward_hook(count_attention)
    try:
        logits(policy, batch)
        first, calls[:] = list(calls), []
        logits(policy, batch)
    finally:
        hook.remove()
    assert "InternVLVisionLayer" in first
    assert calls == first


@pytest.mark.parametrize("family", ["internvl", "llava", "llava_next", "llava_onevision", "mistral3"])
def test_vision_arguments_change_what_they_change_in_the_stock_model(
    family, policy_for, bare_for, native_processor_for
):
    policy, bare = policy_for(family).requires_grad_(False), bare_for(family)
    rows = [one_image(), two_images()]
    batch = tickets(policy.processing_class, rows)
    pixels = native(native_processor_for(family), rows)
    before = logits(policy, batch)
    other = -2 if bare.config.vision_feature_layer == -1 else -1
    expected = logits(bare, pixels, vision_feature_layer=other)
    assert (expected - before).abs().max() > 1e-3
    torch.testing.assert_close(logits(policy, batch, vision_feature_layer=other), expected, atol=ATOL, rtol=0)
    torch.testing.assert_close(logits(policy, batch), before, atol=ATOL, rtol=0)
    policy.config.vision_feature_layer = bare.config.vision_feature_layer = other
    torch.testing.assert_close(logits(policy, batch), logits(bare, pixels), atol=ATOL, rtol=0)


def count(processing_class, rows):
    return (tickets(processing_class, rows)["input_ids"] == processing_class.state.placeholder_id).sum()


def test_settings_of_the_image_processor_count_for_seen_images(policy_for, checkpoint):
    policy = AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), dtype="float32")
    rows, processing = [one_image()], policy.processing_class
    before = count(processing, rows)
    values = processing.processed(decode_tickets(tickets(processing, rows)["pixel_values"])[0][0]).inputs[
        "pixel_values"
    ]
    processing.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    after = count(processing, rows)
    assert after < before
    processing.image_processor.image_mean = (0.1, 0.1, 0.1)
    ticket = decode_tickets(tickets(processing, rows)["pixel_values"])[0][0]
    inputs = processing.processed(ticket).inputs["pixel_values"]
    native_inputs = processing.native_image_processor(images_of(rows[0]), return_tensors="pt")["pixel_values"]
    assert inputs.shape != values.shape
    assert torch.equal(inputs, native_inputs)


@pytest.mark.parametrize("family", ALL)
def test_features_follow_the_settings_of_the_image_processor(
    family, policy_for, bare_for, native_processor_for
):
    policy, bare = policy_for(family).requires_grad_(False), bare_for(family)
    processor, rows = native_processor_for(family), [one_image()]
    image_processor = policy.processing_class.image_processor
    kept = image_processor.image_mean
    try:
        logits(policy, tickets(policy.processing_class, rows))
        image_processor.image_mean = processor.image_processor.image_mean = (0.1, 0.2, 0.3)
        found = logits(policy, tickets(policy.processing_class, rows))
        torch.testing.assert_close(found, logits(bare, native(processor, rows)), atol=ATOL, rtol=0)
    finally:
        image_processor.image_mean = kept


# What the native processor writes for an image: Gemma 3's text of it, LLaVA's number of its tokens.
OF_THE_PROCESSOR = {
    "gemma3": lambda processor, _: setattr(
        processor, "full_image_sequence", processor.full_image_sequence.strip()
    ),
    "llava": lambda processor, model: (
        setattr(processor, "vision_feature_select_strategy", "full"),
        setattr(model.config, "vision_feature_select_strategy", "full"),
    ),
}


@pytest.mark.parametrize("family", OF_THE_PROCESSOR)
def test_settings_of_the_processor_count_for_seen_images(family, checkpoint, bare_for, native_processor_for):
    policy = AutoVLMPolicy.from_pretrained(checkpoint(family), dtype="float32").eval().requires_grad_(False)
    bare, processor, rows = bare_for(family), native_processor_for(family), [one_image()]
    before = tickets(policy.processing_class, rows)
    logits(policy, before)
    OF_THE_PROCESSOR[family](policy.processing_class, policy)
    OF_THE_PROCESSOR[family](processor, bare)
    ours, stock = tickets(policy.processing_class, rows), native(processor, rows)
    assert before["input_ids"].shape != ours["input_ids"].shape
    assert torch.equal(ours["input_ids"], stock["input_ids"])
    torch.testing.assert_close(logits(policy, ours), logits(bare, stock), atol=ATOL, rtol=0)


def test_rows_of_other_image_settings_are_refused(checkpoint):
    policy = AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), dtype="float32").eval()
    beside = tickets(policy.processing_class, [one_image()])
    inside = policy.processing_class.pad(
        [policy.processing_class.encode_prompt(one_image())], return_tensors="pt"
    )
    policy.processing_class.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 84 * 56}
    for batch in (beside, inside):
        with pytest.raises((ImageError, TicketError), match="settings changed after the row was encoded"):
            logits(policy, batch)


def test_a_copy_with_other_settings_has_its_own_images(policy_for):
    processing = policy_for("qwen2_5_vl").processing_class
    twin = copy.deepcopy(processing)
    rows = [user("How many?", images_of(one_image())[0])]
    before = count(processing, rows)
    twin.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    assert count(twin, rows) < before
    assert count(processing, rows) == before
