"""Language models, towers and settings that the golden checkpoints do not have."""

import functools
import json

import jinja2
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from transformers import AutoModelForImageTextToText

from hf_vlm_rl import AutoVLMPolicy, CheckpointError, UnsupportedModelError
from hf_vlm_rl.loading.internvl_chat.convert import convert
from hf_vlm_rl.loading.internvl_chat.processor import TilesOnly
from hf_vlm_rl.loading.internvl_chat.templates import CONVERSATIONS
from hf_vlm_rl.loading.internvl_chat.tokenizer import read_sentencepiece, sentencepiece
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets

from .golden import DATA, photo
from .originals import write_original

LAYER = "language_model.model.layers.1."
# The original class, its config, and a key that tells that the layout is the original's.
BACKBONES = {
    "InternLM2ForCausalLM": ({"bias": True, "rope_theta": 1e6}, "attention.wqkv.bias", [96]),
    "LlamaForCausalLM": ({"rope_theta": 500000.0}, "self_attn.q_proj.weight", [64, 64]),
    "Phi3ForCausalLM": ({}, "self_attn.qkv_proj.weight", [96, 64]),
    "Qwen2ForCausalLM": ({}, "self_attn.q_proj.bias", [64]),
    "Qwen3ForCausalLM": ({"head_dim": 16}, "self_attn.q_norm.weight", [16]),
    "Qwen3MoeForCausalLM": (
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16},
        "mlp.experts.3.gate_proj.weight",
        [32, 64],
    ),
}


def llm(name: str) -> dict:
    return {"architectures": [name]} | BACKBONES[name][0]


def inputs(policy, text: str = "What is it?") -> dict:
    blocks = [{"type": "image", "image": photo("coffee_wide.png")}, {"type": "text", "text": text}]
    return policy.processing_class.apply_chat_template(
        [{"role": "user", "content": blocks}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


def pixel_inputs(policy) -> dict:
    batch = inputs(policy)
    tickets = [ticket for ticket, _ in decode_tickets(batch["pixel_values"])]
    tiles = [policy.processing_class.processed(ticket).inputs["pixel_values"] for ticket in tickets]
    return {"input_ids": batch["input_ids"], "pixel_values": torch.cat(tiles)}


def load(folder, **kwargs):
    return AutoVLMPolicy.from_pretrained(folder, dtype="float32", max_tiles=4, **kwargs).eval()


def assert_same(model, expected, batch):
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, expected(**batch).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_survives_the_round_trip(name, tmp_path):
    expected, tensors = write_original(tmp_path / "original", llm(name))
    _, key, shape = BACKBONES[name]
    assert list(tensors[LAYER + key].shape) == shape
    policy = load(tmp_path / "original")
    for parameter, value in expected.state_dict().items():
        assert torch.equal(policy.state_dict()[parameter], value), parameter
    batch = pixel_inputs(policy)
    assert_same(policy, expected, batch)
    convert(tmp_path / "original", tmp_path / "converted", shard_bytes=100_000)
    stock = AutoModelForImageTextToText.from_pretrained(tmp_path / "converted").eval()
    assert_same(stock, expected, batch)
    policy.save_pretrained(tmp_path / "saved")
    assert_same(AutoModelForImageTextToText.from_pretrained(tmp_path / "saved").eval(), expected, batch)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_shares_prompts_exactly(name, tmp_path):
    """In training forwards and in generate; Phi3's attention has other layers than the rest."""
    write_original(tmp_path / "original", llm(name))
    policy = load(tmp_path / "original")
    batch = {key: value.repeat(3, *[1] * (value.ndim - 1)) for key, value in inputs(policy).items()}
    own = torch.tensor([[5, 6, 7], [5, 8, 9], [10, 11, 12]])
    rows = batch | {"input_ids": torch.cat([batch["input_ids"], own], dim=1)}
    rows["attention_mask"] = torch.ones_like(rows["input_ids"])
    gradients, answers = [], []
    for mode in (True, False):
        policy.base_model.sharing.mode = mode
        policy.zero_grad()
        logits = policy(**rows, use_cache=False).logits
        logits[:, -4:].log_softmax(-1)[..., ::7].mean().backward()
        gradients.append((logits.detach(), policy.get_input_embeddings().weight.grad.clone()))
        answers.append(policy.generate(**batch, max_new_tokens=4, do_sample=False))
    assert policy.sharing_report()["not_shared"] == {}
    assert policy.sharing_report()["tokens"] == rows["input_ids"].numel()
    (logits, gradient), (expected_logits, expected_gradient) = gradients
    torch.testing.assert_close(logits, expected_logits, atol=5e-5, rtol=1e-4)
    scale = expected_gradient.abs().max()
    torch.testing.assert_close(gradient / scale, expected_gradient / scale, atol=1e-4, rtol=0)
    assert torch.equal(*answers)


def test_phi3_with_long_rope(tmp_path):
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    scaling = {"type": "su", **factors}
    config = {"rope_scaling": scaling, "original_max_position_embeddings": 128}
    expected, _ = write_original(tmp_path / "original", llm("Phi3ForCausalLM") | config)
    policy = load(tmp_path / "original")
    assert policy.config.text_config.rope_parameters["rope_type"] == "longrope"
    assert_same(policy, expected, pixel_inputs(policy))


def test_tied_embeddings(tmp_path):
    config = llm("Qwen3ForCausalLM") | {"tie_word_embeddings": True}
    expected, tensors = write_original(tmp_path / "original", config)
    assert "language_model.lm_head.weight" not in tensors
    policy = load(tmp_path / "original")
    assert policy.get_output_embeddings().weight is policy.get_input_embeddings().weight
    assert_same(policy, expected, pixel_inputs(policy))
    convert(tmp_path / "original", tmp_path / "converted")
    assert_same(load(tmp_path / "converted"), expected, pixel_inputs(policy))


def test_a_tokenizer_needs_no_weights(tmp_path):
    write_original(tmp_path / "original", llm("Qwen2ForCausalLM"))
    (tmp_path / "original" / "model.safetensors").unlink()
    tokenizer = AutoVLMPolicy.tokenizer(tmp_path / "original", local_files_only=True)
    assert tokenizer("What is it?").input_ids


def test_only_their_names_say_whether_a_head_is_tied(tmp_path):
    write_original(tmp_path / "original", llm("Qwen3ForCausalLM") | {"tie_word_embeddings": True})
    assert AutoVLMPolicy.tokenizer(tmp_path / "original")("What is it?").input_ids
    (tmp_path / "original" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no file model\.safetensors\.index\.json"):
        AutoVLMPolicy.tokenizer(tmp_path / "original")


def test_an_earlier_vision_layer(tmp_path):
    expected, _ = write_original(tmp_path / "original", llm("Qwen2ForCausalLM"), select_layer=-2)
    policy = load(tmp_path / "original")
    assert policy.config.vision_feature_layer == -2
    batch = pixel_inputs(policy)
    assert_same(policy, expected, batch)
    with torch.no_grad():
        tower = policy.base_model.vision_tower(batch["pixel_values"], output_hidden_states=True)
        found = policy.base_model.get_image_features(batch["pixel_values"]).pooler_output
        side = int((tower.hidden_states[1].shape[1] - 1) ** 0.5)
        tokens = tower.hidden_states[1][:, 1:].unflatten(1, (side, side))  # after the first of two layers
        shuffled = policy.base_model.pixel_shuffle(tokens, 0.5).flatten(1, 2)
        torch.testing.assert_close(found, policy.base_model.multi_modal_projector(shuffled))


@pytest.mark.parametrize("change", [{"ps_version": "v1"}, {}], ids=["said", "by default"])
def test_the_first_pixel_shuffle_is_refused(tmp_path, change):
    write_original(tmp_path / "v1", llm("Qwen2ForCausalLM"))
    path = tmp_path / "v1" / "config.json"
    config = json.loads(path.read_text())
    del config["ps_version"]
    path.write_text(json.dumps(config | change))
    for load_or_convert in (load, lambda folder: convert(folder, tmp_path / "converted")):
        with pytest.raises(UnsupportedModelError, match="has ps_version 'v1'"):
            load_or_convert(tmp_path / "v1")
    assert not (tmp_path / "converted").exists()


def test_a_forced_image_size_interpolates_the_positions(tmp_path):
    write_original(tmp_path / "original", llm("Qwen2ForCausalLM"), force_image_size=56)
    policy = load(tmp_path / "original")
    assert policy.processing_class.image_processor.size == {"height": 56, "width": 56}
    assert policy.config.image_seq_length == 4
    assert torch.isfinite(policy(**inputs(policy)).logits).all()


def test_without_thumbnail_or_tiles(tmp_path):
    write_original(tmp_path / "tiles", llm("Qwen2ForCausalLM"), use_thumbnail=False)
    write_original(tmp_path / "one", llm("Qwen2ForCausalLM"), dynamic_image_size=False)
    write_original(tmp_path / "both", llm("Qwen2ForCausalLM"), min_dynamic_patch=2, max_dynamic_patch=3)
    tiles = {
        name: pixel_inputs(AutoVLMPolicy.from_pretrained(tmp_path / name))["pixel_values"]
        for name in ("one", "both")
    }
    policy = load(tmp_path / "tiles")
    assert type(policy.processing_class.native_image_processor) is TilesOnly
    assert len(pixel_inputs(policy)["pixel_values"]) == 3  # 256 x 85: 3 x 1
    assert policy.processing_class.image_processor.get_number_of_image_patches(85, 256) == 3
    assert [len(value) for value in tiles.values()] == [1, 4]
    with pytest.raises(ValueError, match="use_thumbnail=false"):
        convert(tmp_path / "tiles", tmp_path / "converted")


def test_min_and_max_tiles_replace_the_checkpoints(original):
    policy = original("tiny-internvl2_5-qwen2", 2)
    processor = policy.processing_class.native_image_processor
    assert (processor.min_patches, processor.max_patches) == (1, 2)
    with pytest.raises(ValueError, match="min_tiles=13"):
        AutoVLMPolicy.from_pretrained(policy.name_or_path, min_tiles=13)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "auto"])
def test_dtype_and_device_map(dtype, original):
    source = original("tiny-internvl2_5-internlm2").name_or_path
    policy = AutoVLMPolicy.from_pretrained(source, dtype=dtype, device_map="cpu")
    expected = torch.float16 if dtype == "float16" else torch.bfloat16
    assert {value.dtype for value in policy.parameters()} == {expected}
    reference = original("tiny-internvl2_5-internlm2").state_dict()
    for key, value in policy.state_dict().items():
        assert torch.equal(value, reference[key].to(expected)), key


@pytest.mark.parametrize("template", CONVERSATIONS)
def test_templates_of_the_generations(template, tmp_path):
    """Against the conversation as the original classes write it: role, text, separator."""
    conversation = CONVERSATIONS[template]
    system, close = conversation.system, conversation.separator
    user, assistant = (f"{conversation.open}{role}{conversation.close}" for role in ("user", "assistant"))
    expected = (
        f"{conversation.open}system{conversation.close}{system}{close}{user}Hi{close}"
        f"{assistant}Hello{close}{user}<IMG_CONTEXT>\nWho?{close}{assistant}"
    )
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Who?"}]},
    ]
    rendered = jinja2.Environment().from_string(conversation.jinja(None))
    assert rendered.render(messages=messages, add_generation_prompt=True) == expected
    own = jinja2.Environment().from_string(conversation.jinja("It's\n\\me"))
    assert "It's\n\\me" in own.render(messages=messages)
    assert system not in rendered.render(messages=[{"role": "system", "content": "S"}, *messages])


def test_known_system_messages():
    facts = {
        "Hermes-2": ("<|im_end|>", "书生多模态大模型"),
        "internlm2-chat": ("<|im_end|>", "书生多模态大模型"),
        "phi3-chat": ("<|end|>", "书生多模态大模型"),
        "internvl2_5": ("<|im_end|>\n", "书生·万象"),
    }
    for name, (separator, words) in facts.items():
        assert CONVERSATIONS[name].separator == separator
        assert words in CONVERSATIONS[name].system
    assert CONVERSATIONS["phi3-chat"].open + "user" + CONVERSATIONS["phi3-chat"].close == "<|user|>\n"


def test_sentencepiece_with_a_dummy_prefix():
    folder = DATA.parent / "sentencepiece"
    cases = json.loads((folder / "dummy_prefix.json").read_text())
    for legacy in (True, False):
        backend = sentencepiece(read_sentencepiece(folder / "dummy_prefix.model"), {}, legacy)
        for case in cases:
            if legacy or not case["text"].startswith((" ", "▁")):
                assert backend.encode(case["text"]).ids == case["ids"], (legacy, case["text"])
                assert backend.decode(case["ids"]) == case["decoded"]


@settings(max_examples=300)
@given(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("eta rains,.\n▁0")), max_size=40))
def test_ids_are_those_of_sentencepiece_itself(text):
    path = str(DATA.parent / "sentencepiece" / "dummy_prefix.model")
    assert _rebuilt().encode(text).ids == SentencePieceProcessor(model_file=path).encode(text)


@functools.cache
def _rebuilt():
    return sentencepiece(read_sentencepiece(DATA.parent / "sentencepiece" / "dummy_prefix.model"), {}, True)
