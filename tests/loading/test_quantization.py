"""bitsandbytes on the decoder alone, with its CPU kernels."""

import copy
import re
import warnings

import pytest
import torch
from peft import get_peft_model
from transformers import BitsAndBytesConfig

from hf_vlm_rl import AutoVLMPolicy, AutoVLMRewardModel, AutoVLMValueModel
from hf_vlm_rl.families.tiny import FAMILIES
from hf_vlm_rl.loading.quantization import decoder_only
from tests.conformance.rounding import assert_equal_gradients
from tests.conformance.test_sharing import group, prompts, real, with_sharing
from tests.loading.internvl_chat.originals import write_original
from tests.mixtures import DECODERS

from .adapters.models import EIGHT, FOUR, encoded, kinds, logits, quantised

bitsandbytes = pytest.importorskip("bitsandbytes", reason="the extra `quant` is not installed")


@pytest.mark.parametrize(("bits", "layer"), [(FOUR, "Linear4bit"), (EIGHT, "Linear8bitLt")], ids=["4", "8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_decoder_is_quantised_and_nothing_else(family, bits, layer, checkpoint):
    policy = quantised(checkpoint(family), bits)
    found = kinds(policy)
    assert found.pop("language") == {layer}
    assert set(found) - {"projector"} == {"vision", "lm_head"}  # Gemma 3 projects by a parameter
    assert set().union(*found.values()) == {"Linear"}
    others = [w for name, w in policy.named_parameters() if not name.startswith(policy.family.language)]
    assert {weight.dtype for weight in others} == {torch.float32}


@pytest.mark.parametrize("kind", [AutoVLMValueModel, AutoVLMRewardModel])
def test_the_head_of_a_scored_model_is_not_quantised(kind, checkpoint, policy_for):
    with pytest.warns(UserWarning, match=r"score\.weight"):
        model = kind.from_pretrained(
            checkpoint("internvl"),
            dtype="float32",
            processing_class=policy_for("internvl").processing_class,
            quantization_config=BitsAndBytesConfig(**FOUR),
        )
    assert kinds(model) == {
        "language": {"Linear4bit"},
        "vision": {"Linear"},
        "projector": {"Linear"},
        "score": {"Linear"},
    }


def test_what_the_user_asks_to_skip_is_skipped(checkpoint):
    policy = quantised(checkpoint("qwen2_5_vl"), FOUR | {"llm_int8_skip_modules": ["lm_head"]})
    assert kinds(policy) == {
        "language": {"Linear4bit"},
        "vision": {"Linear4bit"},
        "projector": {"Linear4bit"},
        "lm_head": {"Linear"},
    }


def test_an_empty_list_skips_nothing(checkpoint):
    found = kinds(quantised(checkpoint("internvl"), FOUR | {"llm_int8_skip_modules": []}))
    assert set().union(*found.values()) == {"Linear4bit"}


@pytest.mark.parametrize("model_type", DECODERS)
def test_fused_experts_stay_as_they_are_and_are_named(model_type, checkpoint):
    """Shared experts are linear layers; the convolutions of hybrid decoders are neither."""
    decoder = DECODERS[model_type]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        policy = quantised(checkpoint(model_type))
    path = f"{policy.family.language}."
    language = {
        name.removeprefix(path).removeprefix("model."): weight
        for name, weight in policy.named_parameters()
        if name.startswith(path)
    }
    packed = {name.removesuffix(".weight") for name, w in language.items() if w.dtype == torch.uint8}
    assert packed == decoder.layers
    assert {language[name].dtype for name in decoder.experts} <= {torch.float32}
    messages = [str(warning.message) for warning in caught if "bitsandbytes" in str(warning.message)]
    number = sum(language[name].numel() for name in decoder.experts)
    if decoder.experts:
        (message,) = messages
        assert f" {number:,} weights in {len(decoder.experts)} fused parameters (" in message
        assert all(re.sub(r"\.\d", ".*", name) in message for name in decoder.experts)
    else:
        assert messages == []


def test_the_callers_config_is_left_as_it_is(checkpoint):
    config = BitsAndBytesConfig(**FOUR)
    before = copy.deepcopy(config.to_dict())
    quantised(checkpoint("internvl"), quantization_config=config)
    assert config.to_dict() == before


@pytest.mark.parametrize(
    ("config", "given", "dtype"),
    [
        (FOUR | {"bnb_4bit_compute_dtype": torch.bfloat16}, {}, torch.bfloat16),
        (FOUR | {"bnb_4bit_compute_dtype": torch.bfloat16}, {"dtype": "float16"}, "float16"),
        (FOUR, {}, None),
        (EIGHT, {}, None),
    ],
)
def test_unquantised_parts_default_to_the_compute_dtype(config, given, dtype, policy_for):
    kwargs = {"quantization_config": BitsAndBytesConfig(**config)} | given
    assert decoder_only(kwargs, policy_for("internvl").family).get("dtype") == dtype


def test_a_dict_is_read_as_a_config(checkpoint):
    policy = quantised(checkpoint("internvl"), quantization_config=dict(FOUR))
    assert kinds(policy)["vision"] == {"Linear"}
    assert kinds(policy)["language"] == {"Linear4bit"}


def test_a_compute_dtype_reaches_tower_projector_and_head(checkpoint):
    config = BitsAndBytesConfig(**FOUR, bnb_4bit_compute_dtype=torch.bfloat16)
    policy = AutoVLMPolicy.from_pretrained(checkpoint("internvl"), quantization_config=config)
    weights = dict(policy.named_parameters())
    for part in (*policy.family.vision, *policy.family.projector, "lm_head"):
        assert {w.dtype for name, w in weights.items() if name.startswith(part)} == {torch.bfloat16}


def test_a_policy_that_was_saved_quantised_loads_as_it_was(checkpoint, tmp_path):
    policy = quantised(checkpoint("internvl"))
    expected = logits(policy, policy.processing_class)
    policy.save_pretrained(tmp_path)
    policy.processing_class.save_pretrained(tmp_path)
    again = AutoVLMPolicy.from_pretrained(tmp_path)
    assert kinds(again) == kinds(policy)
    assert torch.equal(logits(again, again.processing_class), expected)


ORIGINALS = ["InternLM2ForCausalLM", "Phi3ForCausalLM", "Qwen2ForCausalLM"]


@pytest.mark.parametrize("backbone", ORIGINALS)
def test_the_original_internvl_format_loads_quantised(backbone, tmp_path):
    """InternLM2 and Phi3 store q, k and v fused: they are split before they are quantised."""
    llm = {"architectures": [backbone]} | ({"bias": True} if backbone.startswith("InternLM2") else {})
    stock, _ = write_original(tmp_path / "original", llm)
    policy = quantised(tmp_path / "original")
    assert kinds(policy)["language"] == {"Linear4bit"}
    assert kinds(policy)["vision"] == kinds(policy)["lm_head"] == {"Linear"}
    weights = dict(stock.named_parameters())
    quantise, restore = bitsandbytes.functional.quantize_4bit, bitsandbytes.functional.dequantize_4bit
    layers = [(n, m) for n, m in policy.named_modules() if isinstance(m, bitsandbytes.nn.Linear4bit)]
    for name, layer in layers:
        expected = restore(*quantise(weights[f"{name}.weight"].data, quant_type="nf4"))
        assert torch.equal(restore(layer.weight.data, layer.weight.quant_state), expected), name


def test_an_evaluation_changes_neither_values_nor_gradients_of_training(checkpoint):
    """On CPUs with AVX512-BF16, bitsandbytes alone would switch to a kernel without gradients."""
    runs = []
    for evaluate in (False, True):
        torch.manual_seed(0)
        policy = quantised(checkpoint("internvl"))
        model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False)).train()
        if evaluate:
            evaluated = logits(model, policy.processing_class)
            model.train()
        found = model(**encoded(policy.processing_class)).logits
        found.log_softmax(-1)[:, ::3].mean().backward()
        runs.append((found.detach(), [w.grad for w in model.parameters() if w.grad is not None]))
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(evaluated, runs[1][0])
    assert len(runs[0][1]) == 2 * 14
    assert all(torch.equal(*pair) for pair in zip(runs[0][1], runs[1][1], strict=True))


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_sharing_prefixes_gives_the_same_values_and_gradients(family, checkpoint):
    runs = []
    for mode in (True, False):
        torch.manual_seed(0)
        policy = with_sharing(quantised(checkpoint(family)), mode)
        model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False)).train()
        batch = group(policy, prompts(family))
        found = real(model(**batch, use_cache=False, logits_to_keep=8).logits.log_softmax(-1), batch, 8)
        found[:, ::7].mean().backward()
        runs.append((found.detach(), {n: w.grad for n, w in model.named_parameters() if w.grad is not None}))
        assert (policy.sharing_report()["tokens"] > 0) == mode
    torch.testing.assert_close(runs[0][0], runs[1][0], atol=5e-5, rtol=1e-4)
    assert_equal_gradients(policy, runs[0][1], runs[1][1])
