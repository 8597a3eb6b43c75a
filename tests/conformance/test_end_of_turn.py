"""A turn ends where the chat template ends it, also when the tokenizer's eos says otherwise."""

import pytest
from transformers import AutoProcessor, GenerationConfig

from hf_vlm_rl import AutoVLMPolicy

from .cases import ALL, one_image


@pytest.fixture
def gemma_like(checkpoint, tmp_path):
    """A Gemma 3 checkpoint as released: `<eos>` in the tokenizer, `<end_of_turn>` ends a turn."""
    import shutil

    shutil.copytree(checkpoint("gemma3"), tmp_path / "gemma3")
    processor = AutoProcessor.from_pretrained(tmp_path / "gemma3")
    processor.tokenizer.eos_token = "<eos>"
    processor.save_pretrained(tmp_path / "gemma3")
    ids = processor.tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>"])
    GenerationConfig(eos_token_id=ids, pad_token_id=0).save_pretrained(tmp_path / "gemma3")
    return tmp_path / "gemma3"


def test_trainers_see_the_token_that_ends_a_turn(gemma_like):
    policy = AutoVLMPolicy.from_pretrained(gemma_like)
    assert policy.processing_class.eos_token == "<end_of_turn>"
    assert policy.processing_class.tokenizer.eos_token == "<end_of_turn>"
    assert policy.processing_class.eos_token_id in policy.generation_config.eos_token_id


def test_saved_files_keep_the_native_eos(gemma_like, tmp_path):
    policy = AutoVLMPolicy.from_pretrained(gemma_like)
    policy.processing_class.save_pretrained(tmp_path / "saved")
    assert AutoProcessor.from_pretrained(tmp_path / "saved").tokenizer.eos_token == "<eos>"
    assert policy.processing_class.eos_token == "<end_of_turn>"


@pytest.mark.parametrize("family", ALL)
def test_an_answer_ends_with_the_eos_of_the_policy(family, policy_for):
    policy = policy_for(family)
    processing_class = policy.processing_class
    answered = [*one_image(), {"role": "assistant", "content": "A woman."}]
    prompt = processing_class.apply_chat_template(one_image(), add_generation_prompt=True)
    text = processing_class.apply_chat_template(answered)
    assert text.startswith(prompt)
    assert text[len(prompt) :].strip() == f"A woman.{processing_class.eos_token}"
    stops = policy.generation_config.eos_token_id
    assert processing_class.eos_token_id in ([stops] if isinstance(stops, int) else stops)
    assert policy.generation_config.pad_token_id == processing_class.pad_token_id
