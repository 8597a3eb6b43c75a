"""InternVL with other decoders in it: rows share, `generate` saves, and all numbers are those of stock."""

import json
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.policy.generate.agreement import SHARED_CACHE
from hf_vlm_rl.policy.report import Refused

from .cases import native, no_image, one_image, tickets, two_images
from .rounding import assert_equal_gradients
from .test_sharing import SHUFFLED, group, real

ATOL = 5e-5
KEPT = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)
WINDOW = {"sliding_window": 24}
HEAD = {"head_dim": 16}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
DELTA_NET = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MAMBA2 = {"mamba_d_head": 16, "mamba_d_state": 16}
GEMMA = HEAD | WINDOW | {"query_pre_attn_scalar": 16}

# Weights so large, and a cap so low, that it changes all scores.
GEMMA2 = GEMMA | {"attn_logit_softcapping": 1.0, "initializer_range": 0.2}

# Text model types, with what their configs need to be tiny.
PACKED = {
    "apertus": {},
    "arcee": {},
    "cohere": {},
    "cohere2": WINDOW,
    "ernie4_5": HEAD,
    "exaone4": WINDOW | {"sliding_window_pattern": 2},
    "gemma": HEAD,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA,
    "glm4": HEAD,
    "gpt2": {},
    "gpt_neox": {},
    "gpt_oss": LOCAL_EXPERTS | HEAD | WINDOW,
    "granite": {},
    "granitemoe": LOCAL_EXPERTS,
    "helium": HEAD,
    "hunyuan_v1_dense": HEAD,
    "lfm2": {},
    "llama": {},
    "llama4_text": {},
    "mistral": WINDOW,
    "mixtral": LOCAL_EXPERTS,
    "olmo2": {},
    "olmo3": WINDOW,
    "persimmon": {},
    "phi": {},
    "phi3": {},
    "phimoe": LOCAL_EXPERTS,
    "qwen2": WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    "qwen3": HEAD,
    "qwen3_moe": HEAD | EXPERTS,
    "smollm3": {},
    "starcoder2": WINDOW,
}
RECURRENT = {
    "bamba": MAMBA2 | {"mamba_n_heads": 8, "attn_layer_indices": [1, 3]},
    "qwen3_next": HEAD | EXPERTS | DELTA_NET | {"shared_expert_intermediate_size": 32},
}
# Biases of positions, or attention of their own: the first check of a packed row fails, and rows stay apart.
UNPACKED = {
    "bloom": {},
    "falcon": {},
    "falcon_h1": MAMBA2 | {"mamba_d_ssm": 64, "mamba_n_heads": 4},
    "nemotron": {},
    "opt": {},
    "stablelm": {},
}
EVERY = PACKED | RECURRENT | UNPACKED
JAMBA = {"attn_layer_period": 2, "attn_layer_offset": 1}


@pytest.fixture
def directory(checkpoint, tmp_path):
    """`directory(decoder, settings)`: a tiny InternVL, or else, with that decoder of random weights."""

    def make(decoder, settings, family="internvl"):
        target = tmp_path / "model"
        shutil.copytree(checkpoint(family), target)
        config = json.loads((target / "config.json").read_text())
        kept = {name: config["text_config"][name] for name in KEPT if name in config["text_config"]}
        config["text_config"] = kept | {"model_type": decoder, "num_hidden_layers": 4} | settings
        (target / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
        torch.manual_seed(0)
        AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(target)).float().save_pretrained(
            target
        )
        return target

    return make


def log_probs_and_gradients(policy, batch, mode):
    policy.zero_grad()
    policy.base_model.sharing.mode = mode
    logits = policy(**batch, use_cache=False, logits_to_keep=8).logits.clamp(min=-1e4)
    log_probs = real(logits.log_softmax(-1), batch, 8)
    log_probs[:, ::7].mean().backward()
    gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    return log_probs.detach(), gradients


def batch_of(policy, last):
    batch = group(policy, [one_image(), two_images(), last], order=SHUFFLED)
    return {name: value for name, value in batch.items() if name != "image_grid_thw"}


@pytest.mark.slow
@pytest.mark.parametrize(("decoder", "settings"), [*EVERY.items()], ids=EVERY)
def test_its_numbers_are_those_of_stock(decoder, settings, directory):
    path = directory(decoder, settings)
    bare = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(path, padding_side="left")
    policy = AutoVLMPolicy.from_pretrained(path, dtype="float32", sharing=True).eval()
    batch = batch_of(policy, no_image())
    with torch.no_grad():
        policy(**batch, use_cache=False)  # finds out how this decoder shares
    policy.base_model.renew()
    expected, expected_gradients = log_probs_and_gradients(policy, batch, False)
    found, gradients = log_probs_and_gradients(policy, batch, True)
    torch.testing.assert_close(found, expected, atol=ATOL, rtol=0)
    assert_equal_gradients(policy, gradients, expected_gradients)
    report = policy.sharing_report()
    assert report["packed"] == (decoder not in UNPACKED)
    if decoder in UNPACKED:
        (reason,) = report["not_shared"]
        # Falcon H1 runs attention and Mamba side by side in each layer.
        assert ("hybrid layers" if decoder == "falcon_h1" else "the self-check failed") in reason
        policy.base_model.renew()
    else:
        assert report["not_shared"] == {}
        assert report["tokens_computed"] < 0.4 * report["tokens"]
    rows = [one_image()] * 3 + [two_images(), no_image(), no_image()]
    options = {"max_new_tokens": 10, "do_sample": True, "top_k": 0, "pad_token_id": 3}
    options |= {"eos_token_id": list(range(10, 30)), "suppress_tokens": list(policy.placeholder_ids)}
    for seed in (0, 1):
        sampled = []
        for model, inputs in (
            (bare, native(processor, rows)),
            (policy, tickets(policy.processing_class, rows)),
        ):
            torch.manual_seed(seed)
            sampled.append(model.generate(**inputs, **options))
        assert torch.equal(*sampled)
    report = policy.sharing_report()
    assert report["not_shared"] == report["rows_kept"] == {}
    assert (report["prompts"], report["prompts_prefilled"]) == (12, 6)


def test_paligemma_2(directory):
    """Prompts that see all of themselves, with capped scores."""
    path = directory("gemma2", GEMMA2, "paligemma")
    policy = AutoVLMPolicy.from_pretrained(path, dtype="float32", sharing=True).eval()
    batch = batch_of(policy, one_image())
    expected, expected_gradients = log_probs_and_gradients(policy, batch, False)
    found, gradients = log_probs_and_gradients(policy, batch, True)
    torch.testing.assert_close(found, expected, atol=ATOL, rtol=0)
    assert_equal_gradients(policy, gradients, expected_gradients)
    report = policy.sharing_report()
    assert (report["packed"], report["not_shared"]) == (True, {})
    assert report["tokens_computed"] < 0.4 * report["tokens"]
    # Without the cap, all is different.
    for layer in policy.base_model.decoder.layers:
        layer.self_attn.attn_logit_softcapping = None
    assert (log_probs_and_gradients(policy, batch, True)[0] - expected).abs().max() > 100 * ATOL


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("decoder", "settings"),
    [
        ("gemma2", GEMMA2 | {"layer_types": ["full_attention"] * 4}),
        ("gpt_oss", PACKED["gpt_oss"] | {"layer_types": ["full_attention"] * 4}),
    ],
    ids=["capped", "sinks"],
)
def test_rows_get_copies_of_a_prompt_where_scores_are_changed(decoder, settings, dtype, directory):
    """The kept prompt's attention only weighs values; in half precision, values would not tell."""
    path = directory(decoder, settings)
    bare = AutoModelForImageTextToText.from_pretrained(path, dtype=getattr(torch, dtype)).eval()
    policy = AutoVLMPolicy.from_pretrained(path, dtype=dtype, sharing=True).eval()
    with pytest.raises(Refused, match=r"the attention module takes (softcap|s_aux)$"):
        policy.base_model.verdicts.ask(SHARED_CACHE, policy.base_model.decoder)
    rows = [one_image()] * 3
    pixels = native(AutoProcessor.from_pretrained(path, padding_side="left"), rows)
    options = {"max_new_tokens": 6, "do_sample": False, "suppress_tokens": list(policy.placeholder_ids)}
    expected = bare.generate(**pixels, **options)
    found = policy.generate(**tickets(policy.processing_class, rows), **options)
    assert policy.sharing_report()["prompts_prefilled"] == 1
    assert dtype == "bfloat16" or torch.equal(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_that_begin_anew_share_nothing(dtype, directory):
    """Jamba's read their states for a single token only: 20 % of its gradients, and 3e-4 of log-probs."""
    policy = AutoVLMPolicy.from_pretrained(directory("jamba", JAMBA), dtype=dtype, sharing=True).eval()
    batch = batch_of(policy, no_image())
    with torch.no_grad():
        for _ in range(3):
            policy(**batch, use_cache=False)
    report = policy.sharing_report()
    assert not report["packed"]
    assert report["tokens"] == 0
    assert all("as if there were no recurrent_states" in reason for reason in report["not_shared"])
