"""`generate` with repeated prompts, whatever it is asked for, against the stock model on native pixels."""

import pytest
import torch
from peft import get_peft_model
from transformers import GenerationConfig

from hf_vlm_rl.compat import CACHE

from .cases import ALL, images_of, native, one_image, tickets, two_images, user

ATOL = 5e-5
GREEDY = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}


def repeated(policy, processor, *rows):
    """Three copies of each row, for the policy (tickets) and the stock model (pixels)."""
    rows = [row for row in rows for _ in range(3)]
    return tickets(policy.processing_class, rows), native(processor, rows)


@pytest.fixture
def sides(policy_for, bare_for, native_processor_for):
    """`sides(family)`: a policy that shares wherever it is exact, the stock model, its processor."""

    def make(family):
        policy = policy_for(family).requires_grad_(False)
        policy.base_model.sharing.mode = True
        return policy, bare_for(family), native_processor_for(family)

    return make


def no_placeholders(policy):
    """What the policy never samples, forbidden for the stock model, too."""
    return {"suppress_tokens": list(policy.placeholder_ids)}


@pytest.mark.parametrize("family", ALL)
def test_without_a_mask_padding_is_found_by_its_id_as_in_the_stock_model(family, sides):
    policy, bare, processor = sides(family)
    batch, pixels = repeated(policy, processor, one_image(), two_images())
    del batch["attention_mask"], pixels["attention_mask"]
    scores = {"output_logits": True, "return_dict_in_generate": True}
    found = policy.generate(**batch, **GREEDY, **scores)
    expected = bare.generate(**pixels, **GREEDY, **scores, **no_placeholders(policy))
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.logits[0], expected.logits[0], atol=ATOL, rtol=0)


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("wanted", ["output_hidden_states", "output_attentions"])
@pytest.mark.parametrize("where", ["argument", "config"])
def test_hidden_states_and_attentions_have_the_stock_shapes(family, wanted, where, sides):
    policy, bare, processor = sides(family)
    for model in (policy, bare):
        model.set_attn_implementation("eager")
    batch, pixels = repeated(policy, processor, one_image())
    options = {"return_dict_in_generate": True, wanted: True} | GREEDY | no_placeholders(policy)
    if where == "config":
        options = {"generation_config": GenerationConfig(**options)}
    found = policy.generate(**batch, **options)
    expected = bare.generate(**pixels, **options)
    name = wanted.removeprefix("output_")
    for mine, theirs in zip(found[name], expected[name], strict=True):
        for layer, stock_layer in zip(mine, theirs, strict=True):
            torch.testing.assert_close(layer, stock_layer, atol=ATOL, rtol=0)


@pytest.mark.parametrize(
    "settings",
    [{"num_beams": 2}, {"num_return_sequences": 2, "do_sample": True}, {"cache_implementation": "static"}],
)
def test_the_models_own_settings_hold_beside_a_passed_config(settings, sides):
    policy, bare, processor = sides("internvl")
    batch, pixels = repeated(policy, processor, one_image())
    runs = []
    for model, inputs in ((policy, batch), (bare, pixels)):
        model.generation_config.update(**settings)
        torch.manual_seed(0)
        config = GenerationConfig(max_new_tokens=4, suppress_tokens=list(policy.placeholder_ids))
        runs.append(model.generate(**inputs, generation_config=config))
    assert torch.equal(*runs)
    assert policy.sharing_report()["prompts_prefilled"] == 0
    assert any(next(iter(settings)) in reason for reason in policy.sharing_report()["not_shared"])


@pytest.mark.parametrize("family", [family for family in ALL if family not in ("gemma3", "paligemma")])
def test_a_kept_cache_honours_later_masks(family, sides):
    """Hidden tokens after an end of sequence, and a second turn that is padded."""
    policy, bare, processor = sides(family)
    batch, pixels = repeated(policy, processor, one_image(), two_images())
    options = GREEDY | {"return_dict_in_generate": True}
    kept = policy.generate(**batch, **options)
    stock = bare.generate(**pixels, **options, **no_placeholders(policy))
    assert torch.equal(kept.sequences, stock.sequences)
    assert policy.sharing_report()["prompts_prefilled"] == 2
    cached = kept[CACHE].get_seq_length()
    mask = torch.cat(
        [batch["attention_mask"], torch.ones(6, cached - batch["attention_mask"].shape[1])], 1
    ).long()
    mask[1::2, -3:] = 0  # rows that ended early
    turn = torch.full((6, 4), policy.config.get_text_config().eos_token_id or 5).random_(20, 60)
    turn_mask = torch.ones(6, 4, dtype=torch.long)
    turn_mask[::2, :2] = 0
    mask = torch.cat([mask, turn_mask], dim=1)
    more = {"input_ids": turn, "attention_mask": mask, "use_cache": True}
    if policy.family.grids:  # the stock forward counts positions for whole rows only
        more["position_ids"] = torch.arange(cached, cached + 4).expand(3, 6, 4)
    with torch.no_grad():
        found = policy(**more, **{CACHE: kept[CACHE]}).logits
        expected = bare(**more, **{CACHE: stock[CACHE]}).logits
    real = turn_mask.bool()
    torch.testing.assert_close(found[real], expected[real], atol=ATOL, rtol=1e-4)


# LLaVA-OneVision cuts an image into crops only where it is a conversation's only one: the second turn's ids
# are not those of the first with something behind them.
@pytest.mark.parametrize("family", [family for family in ALL if family != "llava_onevision"])
@pytest.mark.parametrize("carried", ["all", "new"])
def test_a_new_image_on_a_kept_cache_is_seen(family, carried, sides):
    policy, bare, processor = sides(family)
    options = GREEDY | {"return_dict_in_generate": True}
    first, again = one_image(), user("And this, is it alike?", *images_of(two_images())[:1])
    kept = policy.generate(**tickets(policy.processing_class, [first]), **options)
    stock = bare.generate(**native(processor, [first]), **options, **no_placeholders(policy))
    cached = stock[CACHE].get_seq_length()
    # The second turn's ids follow what was generated, as a chat program keeps them.
    turn, pixels = tickets(policy.processing_class, [again]), native(processor, [again])
    ids = torch.cat([stock.sequences[:, :cached], turn["input_ids"]], dim=1)
    shared = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    old = tickets(policy.processing_class, [first])["pixel_values"]
    carried_tickets = torch.cat([old, turn["pixel_values"]]) if carried == "all" else turn["pixel_values"]
    found = policy.generate(**shared, pixel_values=carried_tickets, **{CACHE: kept[CACHE]}, **GREEDY)
    arguments = policy.base_model.sharing.vision_arguments
    images = {name: value for name, value in pixels.items() if name in arguments}
    expected = bare.generate(**shared, **images, **{CACHE: stock[CACHE]}, **GREEDY, **no_placeholders(policy))
    assert torch.equal(found, expected)


def test_adapters_by_row_are_those_of_the_rows(sides):
    policy, _, processor = sides("internvl")
    torch.manual_seed(0)
    model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False), adapter_name="a").eval()
    model.add_adapter("b", policy.lora_config(r=4, init_lora_weights=False))
    batch, _ = repeated(policy, processor, one_image())
    names = ["a", "b", "__base__"]

    def run(**options):
        with torch.no_grad():
            return model(**batch, use_cache=False, **options).logits

    mixed = run(adapter_names=names)
    assert any("hook" in reason for reason in policy.sharing_report()["not_shared"])
    for row, name in enumerate(names):
        torch.testing.assert_close(mixed[row], run(adapter_names=[name] * 3)[row], atol=ATOL, rtol=0)
    assert (mixed[0] - mixed[1]).abs().max() > 1e-3
    sampled = model.generate(**batch, adapter_names=names, **GREEDY)
    for row, name in enumerate(names):
        assert torch.equal(sampled[row], model.generate(**batch, adapter_names=[name] * 3, **GREEDY)[row])


def test_a_video_token_outside_the_vocabulary_is_no_hindrance(sides):
    policy, _, processor = sides("internvl")
    state = policy.processing_class.state
    kept, state.never_sampled = state.never_sampled, (*state.never_sampled, 10**6)
    try:
        batch, _ = repeated(policy, processor, one_image())
        assert policy.generate(**batch, **GREEDY).shape[1] > batch["input_ids"].shape[1]
    finally:
        state.never_sampled = kept


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_rows_with_other_videos_share_nothing(family, sides):
    """Tensors of a modality that sharing has no rule for: equal ids say nothing about equal rows."""
    policy, bare, _ = sides(family)
    config = policy.config
    video = [config.vision_start_token_id, *[config.video_token_id] * 4, config.vision_end_token_id]
    ids = torch.tensor([[11, 12, *video, 13, 14, 15, 16]] * 2)
    vision = config.vision_config
    width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values_videos": torch.randn(2 * 16, width, generator=torch.Generator().manual_seed(0)),
        "video_grid_thw": torch.tensor([[1, 4, 4]] * 2),
        "mm_token_type_ids": 2 * (ids == config.video_token_id).long(),
        "use_cache": False,
    }
    with torch.no_grad():
        found, expected = policy(**batch).logits, bare(**batch).logits
    assert (expected[0] - expected[1]).abs().max() > 1e-2
    torch.testing.assert_close(found, expected, atol=ATOL, rtol=0)
    assert policy.sharing_report()["not_shared"] == {"the caller passes pixel_values_videos": 1}
