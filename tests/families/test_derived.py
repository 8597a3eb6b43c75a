"""What is derived of a model: the twelve families' rows, and classes that nobody wrote a row for."""

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    AutoProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen2Config,
    T5Gemma2Config,
)

from hf_vlm_rl import AutoVLMPolicy, UnsupportedModelError, VLMFamily
from hf_vlm_rl.families import FAMILIES
from hf_vlm_rl.families.derive_inputs import derive_inputs, token_types
from hf_vlm_rl.families.derive_parts import derive_parts, names_in, needs_native_inputs
from hf_vlm_rl.loading.stock import complete_family, skeleton
from tests.tiny import EVERY, recipe

QWEN = {
    "vision": ("model.visual",),
    "projector": ("model.visual.merger",),
    "token_types": ("mm_token_type_ids",),
    "companions": ("image_grid_thw",),
    "grids": True,
    "processor_options": {"min_pixels": "min_pixels", "max_pixels": "max_pixels"},
    "video_features": "get_video_features",
    "video_companions": ("video_grid_thw",),
}
IDEFICS = {
    "vision": ("model.vision_model",),
    "projector": ("model.connector",),
    "language": "model.text_model",
}
PLAIN = {
    "vision": ("model.vision_tower",),
    "projector": ("model.multi_modal_projector",),
    "language": "model.language_model",
    "other": (),
    "token_types": (),
    "companions": (),
    "grids": False,
    "prefix_attention": False,
    "alone_differs": False,
    "needs_image": False,
    "native_inputs": False,
    "batches_images": True,
    "video_features": "",
    "video_companions": (),
    "processor_options": {},
}
VIDEO = {"video_features": "get_video_features", "video_companions": ("video_grid_thw",)}
FRAMES = {"video_features": "get_image_features"}
# What differs from PLAIN, as people once wrote it by hand.
EXPECTED = {
    "internvl": FRAMES | {"processor_options": {"min_tiles": "min_patches", "max_tiles": "max_patches"}},
    "qwen2_vl": QWEN,
    "qwen2_5_vl": QWEN | {"video_companions": ("second_per_grid_ts", "video_grid_thw")},
    "qwen3_vl": QWEN | {"projector": ("model.visual.merger", "model.visual.deepstack_merger_list")},
    "gemma3": {"token_types": ("token_type_ids",)},
    "llava": {},
    "llava_next": {},
    "llava_onevision": VIDEO | {"alone_differs": True, "video_companions": ()},
    "idefics3": IDEFICS,
    "smolvlm": IDEFICS | FRAMES,
    "mistral3": {},
    "paligemma": {"token_types": ("token_type_ids",), "prefix_attention": True, "needs_image": True},
    # A tower that normalises over the batch.
    "fast_vlm": {"native_inputs": True, "batches_images": False},
    # Two towers; modules beside the images' way; two kinds of token types; images in the last dimension.
    "deepseek_vl_hybrid": {
        "vision": ("model.vision_model", "model.high_res_vision_model"),
        "projector": ("model.aligner", "model.high_res_vision_proj", "model.high_res_vision_neck"),
    },
    "qwen2_5_omni_thinker": QWEN
    | {
        "other": ("model.audio_tower",),
        "token_types": (),
        "video_companions": ("video_grid_thw", "video_second_per_grid"),
    },
    "ernie4_5_vl_moe": VIDEO
    | {
        "projector": ("model.resampler_model",),
        "token_types": ("mm_token_type_ids", "moe_mm_token_type_ids"),
        "companions": ("image_grid_thw",),
        "grids": True,
    },
    "minicpmv4_7": VIDEO
    | {
        "video_companions": (),
        "projector": ("model.merger", "model.vision_tower.vit_merger"),
        "token_types": ("mm_token_type_ids",),
        "companions": ("target_sizes",),
        "grids": True,
        "batches_images": False,
    },
}


@pytest.mark.parametrize("model_type", EXPECTED)
def test_a_row_is_derived_from_the_model_and_its_processor(model_type):
    made = recipe(model_type)
    model = skeleton(made.config)
    derived = derive_parts(model) | derive_inputs(model, made.processor, needs_native_inputs(model))
    expected = PLAIN | EXPECTED[model_type]
    options = derived.pop("processor_options")
    assert expected.pop("processor_options").items() <= options.items()
    assert derived == expected


@pytest.mark.parametrize("model_type", EVERY)
def test_token_types_are_those_of_the_native_processor(model_type):
    """Made on the ids' device where the processor has the general function, which is the slow twin."""
    processor = recipe(model_type).processor
    ids = torch.arange(len(processor.tokenizer)).repeat(2).view(2, -1)
    for name in ("mm_token_type_ids", "moe_mm_token_type_ids"):
        try:
            expected = getattr(processor, f"create_{name}", processor.create_mm_token_type_ids)(ids.tolist())
        except TypeError:  # Idefics' own function wants the lengths of images; its models take no types
            continue
        assert torch.equal(token_types(processor, name, ids), torch.tensor(expected))


@pytest.mark.parametrize("model_type", FAMILIES)
def test_written_rows_hold_nothing_that_can_be_derived(model_type):
    row = FAMILIES[model_type]
    derivable = set(PLAIN)
    assert row.missing == derivable
    made = recipe(model_type)
    whole = complete_family(skeleton(made.config), made.processor)
    assert not whole.missing
    assert (whole.boxes, whole.least_tokens) == (row.boxes, row.least_tokens)


def test_what_is_written_wins():
    row = VLMFamily("x", vision=("model.eyes",), grids=True)
    whole = row.completed(PLAIN)
    assert (whole.vision, whole.grids, whole.language) == (("model.eyes",), True, PLAIN["language"])
    assert not whole.missing


def test_one_name_in_place_of_several_is_refused():
    with pytest.raises(TypeError, match=r"vision='model.eyes'. Expected a tuple: vision=\('model.eyes',\)"):
        VLMFamily("x", vision="model.eyes")


def test_names_are_found_in_comprehensions_and_called_methods():
    class Base:
        def first(self):
            return [self.inside for _ in self.second()]

        def second(self):
            return self.deep.value

    names = names_in(Base, "first")
    assert {"inside", "deep", "value"} <= set(names)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (T5Gemma2Config, "is an encoder-decoder model"),
        (Qwen2Config, "it is a language model without vision"),
    ],
)
def test_what_is_no_decoder_with_eyes_says_why(tmp_path, config, message):
    config().save_pretrained(tmp_path)
    recipe("llava").processor.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=message):
        AutoVLMPolicy.from_pretrained(tmp_path)


class OwnConfig(LlavaConfig):
    model_type = "own_llava"


class OwnForConditionalGeneration(LlavaForConditionalGeneration):
    config_class = OwnConfig


def test_an_invented_class_that_is_registered_with_transformers_loads_without_a_row(tmp_path):
    AutoConfig.register("own_llava", OwnConfig)
    AutoModelForImageTextToText.register(OwnConfig, OwnForConditionalGeneration)
    made = recipe("llava")
    AutoProcessor.register(OwnConfig, type(made.processor))
    config = OwnConfig(**{k: v for k, v in made.config.to_dict().items() if k != "model_type"})
    OwnForConditionalGeneration(config).save_pretrained(tmp_path)
    made.processor.save_pretrained(tmp_path)
    policy = AutoVLMPolicy.from_pretrained(tmp_path)
    assert isinstance(policy, OwnForConditionalGeneration)
    assert policy.family == VLMFamily("own_llava").completed(
        PLAIN | {"processor_options": policy.family.processor_options}
    )
    answer = policy.chat("What is this?", max_new_tokens=2)
    assert isinstance(answer, str)
