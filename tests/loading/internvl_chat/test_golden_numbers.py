"""Features, logits, answers, log-probs and gradients equal those of the original code."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.loading.internvl_chat.config import backbone_of

from .golden import COLUMNS, DATA, INTERNLM2, NAMES, Case, chat_cases, directory, photo, read, user
from .originals import original_names, stored_config

CASES = chat_cases()


def pixels(case: Case, policy) -> dict[str, torch.Tensor]:
    """The case's tiles as float pixel values."""
    if not case.data["images"]:
        return {}
    processor = policy.processing_class.native_image_processor
    rows = [
        processor(photo(image["file"]), max_patches=image["max_num"], return_tensors="pt")["pixel_values"]
        for image in case.data["images"]
    ]
    return {"pixel_values": torch.cat(rows)}


def gradients_of(case: Case) -> Path:
    return DATA / case.checkpoint / "cases" / f"{case.name}.grads.json"


def loss_of(case: Case, logits: torch.Tensor) -> torch.Tensor:
    """Mean negative log-prob of the labelled completion tokens."""
    count, start = case.data["n_labelled_completion_tokens"], case.data["prompt_len"]
    labels = case.ids()[0, start : start + count]
    rows = logits[0, start - 1 : start - 1 + count]
    return torch.nn.functional.cross_entropy(rows, labels)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_features_logits_and_log_probs(case, original):
    policy = original(case.checkpoint)
    tiles = pixels(case, policy)
    with torch.no_grad():
        logits = policy(input_ids=case.ids(), **tiles).logits
        if tiles:
            features = policy.base_model.get_image_features(**tiles, return_dict=True).pooler_output
            expected = torch.from_numpy(case.arrays["vit_embeds"])
            torch.testing.assert_close(features, expected, atol=2e-5, rtol=0)
    expected = torch.from_numpy(case.arrays["logits"])
    torch.testing.assert_close(logits[0][:, COLUMNS], expected, atol=1e-4, rtol=0)
    start = case.data["prompt_len"]
    completion = torch.tensor(case.data["completion_ids"])
    found = logits[0, start - 1 : -1].double().log_softmax(-1).gather(1, completion[:, None])[:, 0]
    expected = torch.tensor(case.data["completion_logprobs"], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert float(loss_of(case, logits)) == pytest.approx(case.data["loss"], abs=1e-4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_greedy_answer(case, original):
    policy = original(case.checkpoint)
    ids = case.ids(completion=False)
    out = policy.generate(ids, **pixels(case, policy), max_new_tokens=12, do_sample=False)
    assert out[0, ids.shape[1] :].tolist() == case.data["chat"]["greedy_ids"]


@pytest.mark.parametrize(
    "case", [case for case in CASES if len(case.max_tiles) < 2 and case.name != "combined_images"], ids=str
)
def test_tickets_give_the_same_answer(case, original):
    policy = original(case.checkpoint, max(case.max_tiles, default=12))
    batch = policy.processing_class.apply_chat_template(
        case.messages(), add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        logits = policy(**batch).logits
    expected = torch.from_numpy(case.arrays["logits"])[: logits.shape[1]]
    torch.testing.assert_close(logits[0][:, COLUMNS], expected, atol=1e-4, rtol=0)
    out = policy.generate(**batch, max_new_tokens=12, do_sample=False)
    assert out[0, batch["input_ids"].shape[1] :].tolist() == case.data["chat"]["greedy_ids"]


@pytest.mark.parametrize("case", [case for case in CASES if gradients_of(case).exists()], ids=str)
def test_gradients(case, fresh):
    policy = fresh(case.checkpoint)
    loss_of(case, policy(input_ids=case.ids(), **pixels(case, policy)).logits).backward()
    gradients = {key: value.grad for key, value in policy.named_parameters() if value.grad is not None}
    found = original_names(policy, gradients, stored_config(directory(case.checkpoint)))
    expected = json.loads(gradients_of(case).read_text())["grads"]
    assert set(found) == {key for key, value in expected.items() if value is not None}
    for key, gradient in found.items():
        norm = expected[key]["l2"]
        assert list(gradient.shape) == expected[key]["shape"]
        assert float(gradient.norm()) == pytest.approx(norm, rel=1e-5)
        first = torch.tensor(expected[key]["first16"])
        error = (gradient.flatten()[:16] - first).abs().max()
        assert error <= 1e-5 * norm, key


@pytest.mark.parametrize("checkpoint", NAMES)
def test_left_padded_batch(checkpoint, original):
    case = read(checkpoint, "batch_left_pad.json")
    policy = original(checkpoint)
    rows = []
    for image, question in zip(case["images"], case["questions"], strict=True):
        if "<image>" not in question:
            question = f"<image>\n{question}"
        rows.append(([user(question, [photo(image["file"])])], image["max_num"]))
    processing = policy.processing_class
    encoded = [
        processing.apply_chat_template(
            messages,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            processor_kwargs={"max_patches": most},
        )
        for messages, most in rows
    ]
    ids = processing.pad(
        [{"input_ids": row["input_ids"][0]} for row in encoded], padding_side="left", return_tensors="pt"
    )
    assert ids["input_ids"].tolist() == case["input_ids"]
    assert ids["attention_mask"].tolist() == case["attention_mask"]
    carried = {
        key: torch.cat([torch.as_tensor(row[key]) for row in encoded])
        for key in ("pixel_values", "image_grid_thw")
    }
    out = policy.generate(**ids, **carried, max_new_tokens=12, do_sample=False)
    answers = out[:, ids["input_ids"].shape[1] :].tolist()
    stop = policy.generation_config.eos_token_id
    for answer, expected in zip(answers, case["unbatched_greedy_ids"], strict=True):
        if stop in answer:
            answer = answer[: answer.index(stop) + 1]
        assert answer == expected


def test_dynamic_rope_beyond_the_trained_length():
    case = read(INTERNLM2, "cases/rope_dynamic_maxpos64.json")
    source = directory(INTERNLM2)
    config = AutoVLMPolicy.from_pretrained(source, dtype="float32").config
    config.text_config.max_position_embeddings = 64
    policy = AutoVLMPolicy.from_pretrained(source, config=config, dtype="float32").eval()
    with torch.no_grad():
        logits = policy(input_ids=torch.tensor([case["input_ids"]])).logits
    expected = torch.from_numpy(Case(INTERNLM2, "rope_dynamic_maxpos64").arrays["logits"])
    torch.testing.assert_close(logits[0][:, COLUMNS], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("checkpoint", NAMES)
def test_placeholders_in_a_completion_keep_their_embedding(checkpoint, original):
    """As incremental generation sees them; through inputs_embeds, since ids would be ambiguous."""
    data = read(checkpoint, "cases/img_context_in_completion.json")
    policy, based = original(checkpoint), Case(checkpoint, data["based_on"])
    ids = torch.tensor([data["input_ids"] + data["completion_ids"]])
    with torch.no_grad():
        embeddings = policy.get_input_embeddings()(ids)
        features = policy.base_model.get_image_features(**pixels(based, policy)).pooler_output
        places = (ids == policy.config.image_token_id) & (torch.arange(ids.shape[1]) < data["prompt_len"])
        embeddings[places] = features.flatten(0, 1)
        logits = policy(inputs_embeds=embeddings).logits
    expected = torch.from_numpy(Case(checkpoint, "img_context_in_completion").arrays["logits"])
    torch.testing.assert_close(logits[0][:, COLUMNS], expected, atol=1e-4, rtol=0)


def test_the_config_says_which_checkpoint_it_is(original):
    for name in NAMES:
        policy = original(name)
        assert policy.config.name_or_path == policy.name_or_path == str(directory(name))
        assert policy.config.model_type == "internvl"
        assert backbone_of(stored_config(directory(name)), name)
        assert type(policy.config) is type(AutoConfig.for_model("internvl"))
        assert policy.generation_config.eos_token_id == policy.processing_class.eos_token_id
        assert policy.processing_class.eos_token == "<|im_end|>"
