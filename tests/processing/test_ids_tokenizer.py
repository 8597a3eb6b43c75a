"""The tokenizer for trainers of texts and ids: what it writes, and that nothing is lost on the way."""

import copy
import multiprocessing
import pickle

import datasets
import dill
import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase, ProcessorMixin

from hf_vlm_rl import AutoVLMPolicy, ImageError, TicketError, UnsupportedModelError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.processing.prompts import CAT, COFFEE, ROCKET, user

QUESTION = "Compare them."
CAUSAL = tuple(family for family in FAMILIES if family != "paligemma")
ROW = {"prompt": [{"role": "user", "content": QUESTION}], "images": [CAT, COFFEE], "answer": "7"}
BLOCKS = user(CAT, COFFEE, QUESTION)


@pytest.fixture(params=CAUSAL)
def family(request):
    return request.param


@pytest.fixture
def tokenizer(processing):
    return processing.as_tokenizer()


def clean(tokenizer, ids) -> list[int]:
    processing = tokenizer.processing_class
    return processing.codec.read(list(ids), lambda ticket: processing.processed(ticket).tokens)[0]


def images(tokenizer, ids) -> list[bytes]:
    processing = tokenizer.processing_class
    _, tickets = processing.codec.read(list(ids), lambda ticket: processing.processed(ticket).tokens)
    return [processing.image_store.get(ticket).image.tobytes() for ticket in tickets]


def text_of(tokenizer) -> str:
    prompt = tokenizer.with_tickets(ROW)["prompt"]
    return tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)


def test_it_is_a_tokenizer_and_no_processor(tokenizer):
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    assert not isinstance(tokenizer, ProcessorMixin)
    assert tokenizer is tokenizer.processing_class.as_tokenizer()


def test_its_ids_are_those_of_the_processing_class_with_the_tickets_inside(tokenizer):
    processing = tokenizer.processing_class
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
    native = processing.apply_chat_template([BLOCKS], **options)["input_ids"][0]
    for conversation in (BLOCKS, tokenizer.with_tickets(ROW)["prompt"]):
        ids = tokenizer.apply_chat_template(conversation, **options)["input_ids"]
        assert clean(tokenizer, ids) == list(native)
        assert images(tokenizer, ids) == [CAT.tobytes(), COFFEE.tobytes()]


OPTIONS = {"qwen2_5_vl": {"min_pixels": 25088, "max_pixels": 31360}, "internvl": {"max_num": 2}}


@pytest.mark.parametrize("family", OPTIONS, indirect=True)
def test_options_of_an_image_travel_in_its_mark(tokenizer, family):
    processing = tokenizer.processing_class
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
    block = {"type": "image", "image": COFFEE, **OPTIONS[family]}
    conversation = user(block, QUESTION)
    native = processing.apply_chat_template([conversation], **options)["input_ids"][0]
    plain = processing.apply_chat_template([user(COFFEE, QUESTION)], **options)["input_ids"][0]
    row = tokenizer.with_tickets({"prompt": conversation})
    ids = tokenizer.apply_chat_template(row["prompt"], **options)["input_ids"]
    assert clean(tokenizer, ids) == list(native)
    assert len(ids) != len(plain)
    with pytest.raises(ImageError, match="which a text cannot carry"):
        tokenizer(tokenizer.decode(ids))


@pytest.mark.parametrize("family", OPTIONS, indirect=True)
def test_unknown_options_of_an_image_are_refused(tokenizer):
    block = {"type": "image", "image": COFFEE, "size": 7}
    with pytest.raises(ImageError, match=r"got 'size' beside an image.*itself stands under 'image', 'path'"):
        tokenizer.with_tickets({"prompt": user(block, QUESTION)})


def test_text_without_images_is_what_the_native_tokenizer_makes_of_it(tokenizer):
    native = tokenizer.processing_class.tokenizer
    texts = ["What is it?", "Two rows, of two lengths."]
    for options in (
        {},
        {"padding": True, "return_tensors": "pt"},
        {"truncation": True, "max_length": 3},
        {"return_offsets_mapping": True},
    ):
        ours, theirs = tokenizer(texts, **options), native(texts, **options)
        assert str(dict(ours)) == str(dict(theirs))
    assert tokenizer.encode(texts[0]) == native.encode(texts[0])
    assert tokenizer.decode(native.encode(texts[1])) == native.decode(native.encode(texts[1]))


def test_one_text_or_several_lists_or_tensors(tokenizer):
    text = text_of(tokenizer)
    options = {"add_special_tokens": False}
    one = tokenizer(text, **options)
    assert tokenizer.encode(text, **options) == one["input_ids"]
    assert tokenizer(text=[text], **options)["input_ids"] == [one["input_ids"]]
    assert set(one) == set(tokenizer("What?", **options))
    short = tokenizer("What?", **options)["input_ids"]
    for side in ("left", "right"):
        batch = tokenizer(
            [text, "What?"],
            padding=True,
            padding_side=side,
            return_tensors="pt",
            pad_to_multiple_of=8,
            **options,
        )
        assert batch["input_ids"].shape[1] % 8 == 0
        kept = [ids[mask.bool()].tolist() for ids, mask in zip(*batch.values(), strict=True)][:2]
        assert kept == [one["input_ids"], short]
        edge = 0 if side == "left" else -1
        assert batch["attention_mask"][1, edge] == 0


def test_a_text_is_cut_only_where_no_image_is(processing_for):
    tokenizer = copy.deepcopy(processing_for("qwen2_5_vl").as_tokenizer())
    tokenizer.truncation_side = "right"
    text = text_of(tokenizer)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    options = {"add_special_tokens": False, "truncation": True}
    assert tokenizer(text, max_length=len(ids) - 3, **options)["input_ids"] == ids[:-3]
    with pytest.raises(ImageError, match=r"Row 0: .*would be cut to max_length=40, and with them an image"):
        tokenizer(text, max_length=40, **options)
    tokenizer.truncation_side = "left"
    assert tokenizer(text, max_length=len(ids) - 3, **options)["input_ids"] == ids[3:]
    with pytest.raises(ImageError, match="and with them an image"):
        tokenizer(text, max_length=len(ids) - 60, **options)


def test_decoded_ids_are_a_text_with_tickets(tokenizer):
    text = text_of(tokenizer)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    for skipped in (False, True):
        decoded = tokenizer.decode(torch.tensor(ids), skip_special_tokens=skipped)
        assert QUESTION in decoded
        again = tokenizer(decoded, add_special_tokens=False)["input_ids"]
        assert images(tokenizer, again) == [CAT.tobytes(), COFFEE.tobytes()]
        assert tokenizer.batch_decode(torch.tensor([ids, ids]), skip_special_tokens=skipped) == [decoded] * 2
        assert tokenizer.batch_decode([ids], skip_special_tokens=skipped) == [decoded]
    # Part of a row: what is left of an image reads as its placeholders.
    assert "[ticket" not in tokenizer.decode(ids[: len(ids) // 2])[-40:]


def test_a_mark_that_a_model_spells_is_a_text(tokenizer):
    placeholder = tokenizer.processing_class.state.placeholder
    mark = tokenizer.with_tickets({"prompt": placeholder, "images": [CAT]})["prompt"]
    spelled = [token for letter in mark for token in tokenizer.encode(letter, add_special_tokens=False)]
    text = tokenizer.decode(spelled)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.processing_class.state.placeholder_id not in ids
    assert tokenizer.decode(ids) == text


def test_other_columns_stay_and_other_rows_too(processing_for):
    tokenizer = processing_for("internvl").as_tokenizer()
    row = tokenizer.with_tickets(ROW)
    assert row.keys() == {"prompt", "answer"}
    assert row["answer"] == "7"
    plain = {"prompt": [{"role": "user", "content": "Hello."}], "images": []}
    assert tokenizer.with_tickets(plain) == {"prompt": plain["prompt"]}
    again = tokenizer.with_tickets(row)
    assert again == row
    filled = tokenizer.with_tickets({"messages": BLOCKS})
    assert filled["messages"] == row["prompt"]
    pair = {name: [*BLOCKS, {"role": "assistant", "content": name}] for name in ("chosen", "rejected")}
    assert [tokenizer.with_tickets(pair)[name][0] for name in pair] == row["prompt"] * 2
    empty = {name: [{"role": "user", "content": QUESTION}] for name in ("chosen", "rejected")}
    images_too = tokenizer.with_tickets(empty | {"images": [CAT, COFFEE]})
    assert [images_too[name][0] for name in empty] == row["prompt"] * 2
    text = tokenizer.with_tickets({"prompt": "USER: <IMG_CONTEXT> what?", "image": CAT})["prompt"]
    assert images(tokenizer, tokenizer(text)["input_ids"]) == [CAT.tobytes()]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({"prompt": "What?", "images": [CAT]}, "0 placeholders .* and 1 images"),
        ({"completion": "It.", "images": [CAT]}, "no prompt to put them in"),
        ({"prompt": user(None)}, "image block has no image"),
        ({"prompt": [{"role": "user", "content": [{"type": "audio", "audio": "a"}]}]}, "type 'audio'"),
        (
            {"prompt": [{"role": "user", "content": [{"type": "image"}]}], "images": [CAT, CAT]},
            "1 empty image",
        ),
        ({"prompt": user("What?"), "videos": ["clip.mp4"]}, "a column of videos. Texts carry images"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_lack_something_are_refused(processing_for, row, match):
    with pytest.raises(ImageError, match=match):
        processing_for("internvl").as_tokenizer().with_tickets(row)


def test_texts_that_are_not_its_own_are_refused(processing_for):
    tokenizer = processing_for("qwen2_5_vl").as_tokenizer()
    text = text_of(tokenizer)
    with pytest.raises(ImageError, match="an image block has no image"):
        tokenizer.apply_chat_template(user(None))
    with pytest.raises(ImageError, match="this model's placeholder for an image, and no image for it"):
        tokenizer(text + "<|image_pad|>")
    with pytest.raises(TicketError, match="was cut or edited"):
        tokenizer(text.replace("[ticket ", "[ticket x"))
    with pytest.raises(TicketError, match="No image for ticket"):
        tokenizer("<|image_pad|>[ticket 0123456789abcdef]")
    with pytest.raises(ValueError, match=r"return_offsets_mapping.* for a text with images"):
        tokenizer(text, return_offsets_mapping=True)
    with pytest.raises(TicketError, match="goes to the tokenizer's backend"):
        tokenizer.backend_tokenizer.encode_batch([text], add_special_tokens=False)
    with pytest.raises(UnsupportedModelError, match="attend in both directions"):
        processing_for("paligemma").as_tokenizer()


def test_what_does_not_know_tickets_makes_ids_that_the_policy_refuses(checkpoint, store):
    policy = AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), image_store=store)
    ids = policy.processing_class.tokenizer(text_of(policy.tokenizer), return_tensors="pt")
    with pytest.raises(TicketError, match=r"is damaged|no image came with them"):
        policy(**ids)


def test_template_arguments_reach_the_template(processing_for):
    tokenizer = processing_for("qwen2_5_vl").as_tokenizer()
    template = "{% for m in messages %}{{ m.content[0].text }}{% endfor %}{{ mood }}"
    messages = [{"role": "user", "content": "Hi"}]
    options = {"chat_template": template, "tokenize": False}
    assert tokenizer.apply_chat_template(messages, mood="!", **options) == "Hi!"
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = template
    assert tokenizer.apply_chat_template([messages] * 2, mood="?", tokenize=False) == ["Hi?"] * 2
    prefix = tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True)
    assert prefix == "Hi"


def test_the_native_tokenizer_stays_as_it_is(processing_for):
    processing = processing_for("qwen2_5_vl")
    tokenizer = processing.as_tokenizer()
    tokenizer.padding_side = "right"
    tokenizer.pad_token = "<|im_start|>"
    assert processing.padding_side == "left"
    assert processing.pad_token == "<|endoftext|>"


@pytest.mark.parametrize("pickler", [pickle, dill], ids=["pickle", "dill"])
def test_copies_write_the_same_ids(tokenizer, pickler):
    text = text_of(tokenizer)
    ids = tokenizer(text)["input_ids"]
    for other in (pickler.loads(pickler.dumps(tokenizer)), copy.deepcopy(tokenizer), copy.copy(tokenizer)):
        assert other is not tokenizer
        assert other(text)["input_ids"] == ids


def ids_of(tokenizer, text):
    return tokenizer(text)["input_ids"]


@pytest.mark.slow
def test_a_spawned_child_writes_the_same_ids(processing_for):
    """As the worker of asynchronous trainers gets the tokenizer; it finds the image on disk."""
    tokenizer = processing_for("internvl").as_tokenizer()
    text = text_of(tokenizer)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(ids_of, (tokenizer, text)) == ids_of(tokenizer, text)


def test_workers_write_the_same_rows_and_a_second_map_is_cached(processing_for, tmp_path):
    tokenizer = processing_for("internvl").as_tokenizer()
    rows = [ROW, ROW | {"images": [ROCKET, CAT]}] * 4
    Dataset.from_list(rows).save_to_disk(tmp_path / "rows")

    def carried(**options):
        dataset = datasets.load_from_disk(tmp_path / "rows")
        return dataset.map(tokenizer.with_tickets, remove_columns="images", **options)

    here, there = carried(), carried(num_proc=2)
    assert list(here) == list(there)
    assert carried()._fingerprint == here._fingerprint
    ids = tokenizer.apply_chat_template(there[1]["prompt"])["input_ids"]
    assert images(tokenizer, ids) == [ROCKET.tobytes(), CAT.tobytes()]


def test_saved_it_is_the_native_processor(tokenizer, tmp_path, checkpoint, family):
    tokenizer.save_pretrained(tmp_path / "saved")
    AutoVLMPolicy.from_pretrained(checkpoint(family), dtype="float32").save_pretrained(tmp_path / "saved")
    policy = AutoVLMPolicy.from_pretrained(tmp_path / "saved", dtype="float32")
    native = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert native("What is it?")["input_ids"] == tokenizer("What is it?")["input_ids"]
    ids = policy.tokenizer.apply_chat_template(policy.tokenizer.with_tickets(ROW)["prompt"])["input_ids"]
    assert ids == tokenizer.apply_chat_template(tokenizer.with_tickets(ROW)["prompt"])["input_ids"]
