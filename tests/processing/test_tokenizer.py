"""The processing class as a tokenizer, and as the native processor that it is saved as."""

import filecmp
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoProcessor,
    AutoTokenizer,
    DataCollatorWithPadding,
    ProcessorMixin,
)

from hf_vlm_rl import VLMTokenizer
from tests.processing.prompts import CAT, COFFEE, ROCKET, tickets, user

ATTRIBUTES = (
    "all_special_ids",
    "all_special_tokens",
    "bos_token",
    "bos_token_id",
    "eos_token",
    "eos_token_id",
    "is_fast",
    "model_max_length",
    "name_or_path",
    "pad_token",
    "pad_token_id",
    "padding_side",
    "special_tokens_map",
    "truncation_side",
    "unk_token",
    "unk_token_id",
    "vocab_size",
)


def test_attributes_are_the_tokenizers(processing, checkpoint, family):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint(family), padding_side="left")
    for attribute in ATTRIBUTES:
        if attribute not in ("eos_token", "eos_token_id", "special_tokens_map"):
            assert getattr(processing, attribute) == getattr(tokenizer, attribute), attribute
        assert getattr(processing, attribute) == getattr(processing.tokenizer, attribute), attribute
    assert len(processing) == len(tokenizer)
    assert processing.get_vocab() == tokenizer.get_vocab()
    assert processing.get_added_vocab() == tokenizer.get_added_vocab()


def test_methods_are_the_tokenizers(processing, checkpoint, family):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint(family))
    text = "What is in this picture?"
    assert processing.encode(text) == tokenizer.encode(text)
    assert processing.tokenize(text) == tokenizer.tokenize(text)
    words = processing.convert_ids_to_tokens(processing.encode(text))
    assert words == tokenizer.convert_ids_to_tokens(tokenizer.encode(text))
    assert processing.convert_tokens_to_ids(words) == tokenizer.encode(text)
    assert processing.convert_tokens_to_string(words) == tokenizer.convert_tokens_to_string(words)


def test_it_is_both_a_native_processor_and_ours(processing, native_processor_for, family):
    native = type(native_processor_for(family))
    assert isinstance(processing, native)
    assert isinstance(processing, ProcessorMixin)
    assert isinstance(processing, VLMTokenizer)
    assert (type(processing).__name__, type(processing).__module__) == (native.__name__, native.__module__)


def test_setting_special_tokens_reaches_the_tokenizer(processing):
    word = processing.convert_ids_to_tokens(processing.encode("cat"))[-1]
    processing.pad_token = word
    assert processing.tokenizer.pad_token == word
    assert processing.pad_token_id == processing.tokenizer.pad_token_id == processing.get_vocab()[word]
    processing.eos_token = word
    assert processing.tokenizer.eos_token_id == processing.eos_token_id == processing.get_vocab()[word]


@pytest.mark.parametrize("side", ["left", "right"])
def test_setting_the_padding_side_changes_how_batches_are_padded(processing, side):
    processing.padding_side = side
    assert processing.tokenizer.padding_side == side
    texts = ["a", "a longer one, as it seems"]
    batch = processing(text=texts, padding=True, return_tensors="pt")
    short = batch["attention_mask"][0].tolist()
    assert short == sorted(short, reverse=side == "right")
    assert sum(short) < len(short)


def test_setting_the_truncation_side_changes_what_is_cut(processing):
    text = "one two three four five six seven"
    whole = processing(text=text)["input_ids"][0]
    processing.truncation_side = "right"
    assert processing(text=text, truncation=True, max_length=5)["input_ids"][0][-2:] != whole[-2:]
    processing.truncation_side = "left"
    assert processing(text=text, truncation=True, max_length=5)["input_ids"][0][-2:] == whole[-2:]


def test_a_stock_collator_pads_encoded_prompts_on_the_left(processing):
    prompts = [
        processing.encode_prompt(user(CAT, "one")),
        processing.encode_prompt(user(COFFEE, "and", ROCKET, "a longer one, as it seems")),
        processing.encode_prompt(user("no image at all")),
    ]
    batch = DataCollatorWithPadding(processing)(prompts)
    width = max(len(prompt["input_ids"]) for prompt in prompts)
    for row, mask, prompt in zip(batch["input_ids"], batch["attention_mask"], prompts, strict=True):
        missing = width - len(prompt["input_ids"])
        assert row.tolist() == [processing.pad_token_id] * missing + prompt["input_ids"]
        assert mask.tolist() == [0] * missing + [1] * len(prompt["input_ids"])


def test_ticket_digits_are_ordinary_words_of_the_embedding(processing, policy_for, family):
    reserved = {*processing.all_special_ids, *processing.get_added_vocab().values()}
    rows = policy_for(family).get_input_embeddings().num_embeddings
    codec = processing.codec
    digits = {token for ticket in range(-300, 300) for token in codec.encode(ticket * 2**55 + ticket)}
    assert digits.isdisjoint({*reserved, codec.placeholder_id, processing.pad_token_id})
    assert min(digits) >= 0
    assert max(digits) < rows


def same_files(left: Path, right: Path) -> None:
    names = sorted(str(path.relative_to(left)) for path in left.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(right)) for path in right.rglob("*") if path.is_file())
    different = filecmp.cmpfiles(left, right, names, shallow=False)[1:]
    assert different == ([], [])
    assert names


def test_saved_files_are_those_of_the_native_processor(processing, checkpoint, family, tmp_path):
    native = AutoProcessor.from_pretrained(checkpoint(family), padding_side="left")
    native.save_pretrained(tmp_path / "native")
    processing.encode_prompt(user(CAT, "what is it?"), answer="cat")  # use leaves no trace
    processing.save_pretrained(tmp_path / "ours")
    same_files(tmp_path / "native", tmp_path / "ours")


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # stock PaliGemma
def test_what_is_saved_loads_as_the_stock_class(processing, native_processor_for, family, tmp_path):
    processing.save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert type(loaded) is type(native_processor_for(family))
    arguments = {"images": [[CAT]], "text": [processing.image_token], "return_tensors": "pt"}
    expected, again = native_processor_for(family)(**arguments), loaded(**arguments)
    assert set(again) == set(expected)
    assert all(torch.equal(again[key], expected[key]) for key in expected)


def test_options_of_one_call_are_part_of_its_tickets(processing_for):
    processing = processing_for("internvl")
    text = processing.image_token
    few, many = (
        processing(images=COFFEE, text=text, images_kwargs={"max_patches": patches}) for patches in (1, 4)
    )
    assert tickets(few) != tickets(many)
    placeholder = processing.codec.placeholder_id
    counts = [batch["input_ids"][0].count(placeholder) for batch in (few, many)]
    assert counts == [processing.processed(tickets(batch)[0]).tokens for batch in (few, many)]
    assert counts[0] < counts[1]
    assert processing.image_store.get(tickets(few)[0]).options == {"max_patches": 1}


def test_options_that_change_nothing_keep_the_ticket(processing_for):
    processing = processing_for("internvl")
    plain = processing(images=COFFEE, text=processing.image_token)
    default = processing(images=COFFEE, text=processing.image_token, images_kwargs={"crop_to_patches": True})
    assert tickets(plain) == tickets(default)
