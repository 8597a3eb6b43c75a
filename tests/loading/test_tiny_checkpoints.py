"""The tiny checkpoints are sound: stock classes load all of them, and images move their logits."""

import pytest
import torch
from transformers import AutoConfig, AutoProcessor, BatchFeature, PreTrainedModel, ProcessorMixin

from hf_vlm_rl.families.tiny import auto_class
from tests.images import photo
from tests.tiny import EVERY, recipe

MOST_PARAMETERS = 1_000_000
MOST_TOKENS = 120
# Classes whose own code fixes how many tokens an image becomes at least.
FIXED_TOKENS = {"deepseek_ocr2": 165, "phi4_multimodal": 565}

SOUND = "an image brings no sound"
CHOOSES = "it chooses tokens, which has no gradient"
NOT_READ = "the model reads an earlier layer of the tower"
WORDS = "images become words, which has no gradient"
# Parameters that no answer to images trains, in stock: part of their names, and why.
UNTRAINED = {
    "aria": {"post_layernorm": NOT_READ},
    "aya_vision": {"post_layernorm": NOT_READ},
    "chameleon": {"vqmodel": WORDS},
    "deepseek_ocr2": {"query_1024_resolution": "it is for larger images"},
    "dots3_note": {"audio_tower": SOUND, "indexer": CHOOSES},
    "emu3": {"vqmodel": WORDS},
    "ernie4_5_vl_moe": {
        "layers.1.mlp.vision_moe": "the last layer's is for image tokens alone",
        "text_moe.gate.moe_statics": "it chooses experts, which has no gradient",
    },
    "gemma3n": {"audio": SOUND},
    "glm5_next": {"indexer": CHOOSES},
    "granite4_vision": {"post_layernorm": NOT_READ},
    "granite_docling": {"connector.fine": "its processor was not asked for the fine path"},
    "hunyuan_vl": {"image_sep": "no code of the class reads it"},
    "inkling_mm_model": {"audio": SOUND},
    "janus": {"vqmodel": "it makes images", "generation": "it makes images"},
    "llava": {"encoder.layers.1": NOT_READ, "post_layernorm": NOT_READ},
    "llava_next": {"encoder.layers.1": NOT_READ, "post_layernorm": NOT_READ},
    "llava_next_video": {"encoder.layers.1": NOT_READ, "post_layernorm": NOT_READ},
    "llava_onevision": {"post_layernorm": NOT_READ},
    "minicpm_ocr": {"vit_merger": "its default keeps four times the tokens, without that"},
    "minimax_m3_vl": {"indexer": CHOOSES},
    "mistral_large4": {"indexer": CHOOSES},
    "muse_spark": {"audio": SOUND},
    "nemotron_h_omni": {"video_patch_projection": "an image is no video"},
    "phi4_multimodal": {
        "audio": SOUND,
        "img_processor.encoder.layers.1": NOT_READ,
        "img_processor.post_layernorm": NOT_READ,
        "img_processor.head": NOT_READ,
    },
    "qwen2_5_omni_thinker": {"audio": SOUND},
    "qwen3_omni_moe_thinker": {"audio": SOUND},
    "qwen4_exp": {"indexer": CHOOSES},
    "video_llava": {
        "video_tower": "an image is no video",
        "image_tower.encoder.layers.1": NOT_READ,
        "image_tower.post_layernorm": NOT_READ,
    },
    "vipllava": {"post_layernorm": NOT_READ},
}

# Of equal shape, so that swapping them changes no token.
CAT, COFFEE, ROCKET = (photo(name, (140, 140)) for name in ("cat", "coffee", "rocket"))


@pytest.fixture(autouse=True)
def no_deprecated_calls():
    """Nothing to check: stock classes call each other here, and two of them in a deprecated way."""


@pytest.fixture(scope="module", params=EVERY)
def model_type(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def loaded(model_type, checkpoint) -> tuple[PreTrainedModel, dict]:
    """The model as its Auto class loads it, and what the loading left out."""
    directory = checkpoint(model_type)
    auto = auto_class(AutoConfig.from_pretrained(directory))
    return auto.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)


@pytest.fixture(scope="module")
def model(loaded) -> PreTrainedModel:
    return loaded[0].eval()


@pytest.fixture(scope="module")
def processor(model_type, checkpoint) -> ProcessorMixin:
    processor = AutoProcessor.from_pretrained(checkpoint(model_type))
    if processor.chat_template is None:
        # Some constructors take none; the tokenizer has read the same file.
        processor.chat_template = processor.tokenizer.chat_template
    return processor


def encoded(processor, *images) -> BatchFeature:
    blocks = [{"type": "image", "image": image} for image in images]
    conversation = [{"role": "user", "content": [*blocks, {"type": "text", "text": "What is this?"}]}]
    typed = "mm_token_type_ids" in processor.model_input_names
    inputs = processor.apply_chat_template(
        [conversation],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"return_mm_token_type_ids": True} if typed else {},
    )
    # Llama 4's processor makes bfloat16.
    return inputs.to(torch.float32)


@torch.no_grad()
def logits(model, inputs) -> torch.Tensor:
    """Logits at the last position: (vocabulary,)."""
    return model(**inputs).logits[0, -1]


def test_stock_classes_load_every_weight(loaded):
    model, info = loaded
    assert not any(info.values()), info
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_the_model_is_tiny(model):
    assert model.num_parameters() < MOST_PARAMETERS


def test_answers_end_at_a_word_of_the_tokenizer(model, model_type, processor):
    stops = model.generation_config.eos_token_id
    stops = (stops,) if isinstance(stops, int) else tuple(stops)
    assert stops == recipe(model_type).stop_ids
    assert model.generation_config.pad_token_id == processor.tokenizer.pad_token_id
    assert max(stops) < len(processor.tokenizer)


def test_an_image_becomes_few_tokens(model_type, processor):
    inputs = encoded(processor, photo("astronaut", (224, 224)))
    assert inputs["input_ids"].shape[1] <= FIXED_TOKENS.get(model_type, MOST_TOKENS)


def test_logits_of_one_image_and_of_two_are_finite(model, processor):
    one, two = encoded(processor, CAT), encoded(processor, photo("coffee", (224, 84)), CAT)
    for inputs in (one, two):
        assert torch.isfinite(model(**inputs).logits).all()


def test_each_image_moves_the_logits(model, model_type, processor):
    both = logits(model, encoded(processor, CAT, COFFEE))
    others = [encoded(processor, ROCKET, COFFEE)]
    if not recipe(model_type).one_image:
        others += [encoded(processor, CAT, ROCKET), encoded(processor, COFFEE, CAT)]
    for other in others:
        assert (logits(model, other) - both).abs().max() > 1e-3


def test_each_word_and_its_place_move_the_logits(model, processor):
    inputs = encoded(processor, CAT)
    before = logits(model, inputs)
    ids = inputs["input_ids"]
    for word in (-3, -6):
        changed = ids.clone()
        changed[0, word] = (ids[0, word] + 1) % processor.tokenizer.vocab_size
        assert (logits(model, {**inputs, "input_ids": changed}) - before).abs().max() > 1e-3


def test_an_answer_to_images_trains_every_parameter(model, model_type, processor):
    images = [CAT] if recipe(model_type).one_image else [CAT, photo("coffee", (224, 84))]
    model.zero_grad()
    # Of the last places, as of a completion; some classes take words out by logits as low as -1e38.
    logits = model(**encoded(processor, *images), use_cache=False).logits[:, -4:].clamp(min=-1e4)
    weights = torch.linspace(-1, 1, logits.shape[-1]).sin()
    (logits.log_softmax(-1) @ weights).square().sum().backward()
    untrained = [
        name
        for name, value in model.named_parameters()
        if value.requires_grad and (value.grad is None or not bool(value.grad.any()))
    ]
    model.zero_grad()
    parts = UNTRAINED.get(model_type, {})
    assert [name for name in untrained if not any(part in name for part in parts)] == []
    assert [part for part in parts if not any(part in name for name in untrained)] == []
