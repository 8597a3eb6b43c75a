"""Conversations through the processing class: every spelling of an image, one native prompt."""

import base64
import io
import warnings

import datasets
import numpy as np
import pytest
import torch

from hf_vlm_rl import DataError, ImageError, TicketError
from hf_vlm_rl.processing.images.hashes import image_ticket
from tests.processing.prompts import CAT, COFFEE, ROCKET, same_images, text_of, tickets, user

ENCODE = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}


def encode(processing, conversation) -> tuple[list, list[int]]:
    batch = processing.apply_chat_template(conversation, **ENCODE)
    return [list(row) for row in batch["input_ids"]], tickets(batch)


def test_a_conversation_is_a_batch_of_one(processing):
    one = encode(processing, user(CAT, "what is it?"))
    assert encode(processing, [user(CAT, "what is it?")]) == one
    assert one[1] == [image_ticket(CAT)]


def test_a_batch_gives_the_rows_of_its_conversations(processing, store):
    conversations = [user(CAT, "one"), user("none"), user(COFFEE, "and", ROCKET, "two")]
    ids, found = encode(processing, conversations)
    assert ids == [encode(processing, conversation)[0][0] for conversation in conversations]
    assert same_images(store, found, (CAT, COFFEE, ROCKET))


def test_the_ids_are_those_of_the_native_chat_template(processing, native_processor_for, family):
    native = native_processor_for(family)
    for conversation in (user(CAT, "what is it?"), user(COFFEE, "and", ROCKET, "what?")):
        expected = native.apply_chat_template([conversation], **ENCODE)
        assert encode(processing, conversation)[0] == [list(row) for row in expected["input_ids"]]


def test_the_rendered_text_is_that_of_the_native_chat_template(processing, native_processor_for, family):
    native = native_processor_for(family)
    conversation = [
        *user(CAT, "what is it?"),
        {"role": "assistant", "content": [{"type": "text", "text": "A"}]},
    ]
    assert processing.apply_chat_template(conversation) == native.apply_chat_template(conversation)
    assert processing.apply_chat_template([conversation]) == [native.apply_chat_template(conversation)]


def test_string_content_is_a_text_block(processing):
    assert encode(processing, [{"role": "user", "content": "hi"}]) == encode(processing, user("hi"))


def test_every_key_and_form_of_an_image_gives_the_same_prompt(processing, tmp_path):
    path = tmp_path / "a cat.png"
    CAT.save(path)
    inline = base64.b64encode(path.read_bytes()).decode()
    blocks = [
        {"type": "image", "path": str(path)},
        {"type": "image", "path": path},
        {"type": "image", "url": path.as_uri()},
        {"type": "image", "base64": inline},
        {"type": "image", "image": f"data:image/png;base64,{inline}"},
        {"type": "image", "image": path.read_bytes()},
        {"type": "image", "image": np.asarray(CAT)},
        {"type": "image", "image": {"bytes": path.read_bytes(), "path": None}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{inline}"}},
        {"type": "image_url", "image_url": {"url": path.as_uri(), "detail": "low"}},
        {"type": "image", "image": CAT, "text": None, "url": None, "path": None, "base64": None},
    ]
    expected = encode(processing, user(CAT, "what is it?"))
    for block in blocks:
        conversation = user(None, "what is it?")
        conversation[0]["content"][0] = block
        assert encode(processing, conversation) == expected


@pytest.mark.parametrize("decode", [True, False])
def test_blocks_read_from_arrow_give_the_same_prompt(processing, decode):
    buffer = io.BytesIO()
    CAT.save(buffer, "PNG")
    block = {"type": datasets.Value("string"), "text": datasets.Value("string")}
    features = datasets.Features(
        {
            "prompt": datasets.List(
                {
                    "role": datasets.Value("string"),
                    "content": datasets.List(block | {"image": datasets.Image(decode=decode)}),
                }
            )
        }
    )
    stored = user({"bytes": buffer.getvalue(), "path": None}, "what is it?")
    rows = datasets.Dataset.from_list([{"prompt": stored}, {"prompt": user("none")}], features=features)
    loaded = rows["prompt"]
    assert loaded[0][0]["content"][1]["image"] is None  # what Arrow adds
    assert encode(processing, list(loaded)) == encode(processing, [user(CAT, "what is it?"), user("none")])


@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize("blocks", [True, False])
def test_a_literal_placeholder_in_a_conversation_names_its_row(processing, role, blocks):
    for literal in processing.state.placeholder_texts:
        text = f"what does {literal} mean?"
        content = [{"type": "text", "text": text}] if blocks else text
        bad = [{"role": role, "content": content}, *user("and?")]
        with pytest.raises(ImageError, match=rf"Row 1, message 0 \({role}\): the text contains"):
            processing.apply_chat_template([user(CAT, "fine"), bad], **ENCODE)
        with pytest.raises(ImageError, match="Row 0, message 0"):
            processing.encode_prompt(bad)


def test_a_placeholder_that_the_model_wrote_is_no_image(processing):
    for literal in processing.state.placeholder_texts:
        answer = {"role": "assistant", "content": f"I say {literal}."}
        (ids,), found = encode(processing, [*user(CAT, "what is it?"), answer])
        assert len(found) == 1
        assert "I say" in processing.decode(ids)


def test_an_image_block_without_an_image_is_refused(processing):
    with pytest.raises(ImageError, match="Row 1: 1 image placeholders"):
        processing.apply_chat_template([user(CAT, "one"), user(None, "two")], **ENCODE)


@pytest.mark.parametrize("wrong", [5, "hi", {"role": "user", "content": "hi"}], ids=str)
def test_what_is_no_list_of_messages_is_refused(processing, wrong):
    with pytest.raises(DataError, match=r"^Got .* for a list of messages. Expected messages such as"):
        processing.apply_chat_template(wrong, **ENCODE)


def test_an_encoded_prompt_is_the_native_one_with_tickets_inside(processing):
    conversation = user(COFFEE, "and", ROCKET, "what?")
    (ids,), _ = encode(processing, conversation)
    prompt = processing.encode_prompt(conversation)
    assert set(prompt) == {"input_ids", "attention_mask", "ids_checksum"}
    assert prompt["attention_mask"] == [1] * len(ids)
    assert processing.codec.erase(prompt["input_ids"]) == ids
    clean, found = processing.codec.read(
        prompt["input_ids"], lambda ticket: processing.processed(ticket).tokens
    )
    assert clean == ids
    images = [processing.image_store.get(ticket).image for ticket in found]
    assert [image.tobytes() for image in images] == [COFFEE.tobytes(), ROCKET.tobytes()]


def test_images_beside_the_messages_give_the_same_prompt(processing):
    expected = processing.encode_prompt(user(CAT, "what is it?"))
    assert processing.encode_prompt(user(None, "what is it?"), [CAT]) == expected
    assert processing.encode_prompt(user("what is it?"), [CAT]) == expected
    assert processing.encode_prompt([{"role": "user", "content": "what is it?"}], [CAT]) == expected


def test_columns_travel_with_every_ticket_of_the_row(processing):
    prompt = processing.encode_prompt(user(COFFEE, ROCKET, "what?"), answer="a cup", boxes=[[1, 2.5]])
    _, found = processing.codec.read(prompt["input_ids"], lambda ticket: processing.processed(ticket).tokens)
    columns = [processing.image_store.get(ticket).columns for ticket in found]
    assert columns == [{"answer": "a cup", "boxes": [[1, 2.5]]}] * 2


def test_columns_that_json_cannot_hold_are_refused(processing):
    with pytest.raises(TicketError, match=r"columns \['answer'\].*JSON"):
        processing.encode_prompt(user(CAT, "what?"), answer=object())


def test_a_prompt_without_images_is_plain_text(processing):
    prompt = processing.encode_prompt(user("how are you?"))
    assert prompt["input_ids"] == encode(processing, user("how are you?"))[0][0]


@pytest.mark.parametrize("special", [True, False])
def test_decoding_hides_the_tickets(processing, special):
    prompts = [processing.encode_prompt(user(image, "what is it?"))["input_ids"] for image in (CAT, ROCKET)]
    clean = [encode(processing, user(image, "what is it?"))[0][0] for image in (CAT, ROCKET)]
    skip = {"skip_special_tokens": special}
    shown = [processing.tokenizer.decode(ids, **skip) for ids in clean]
    assert [processing.decode(ids, **skip) for ids in prompts] == shown
    assert processing.batch_decode(prompts, **skip) == shown
    assert processing.batch_decode([torch.tensor(ids) for ids in prompts], **skip) == shown
    assert processing.decode(torch.tensor(prompts[0]), **skip) == shown[0]
    assert processing.decode(np.array(prompts[0]), **skip) == shown[0]
    assert processing.batch_decode(torch.tensor(prompts[:1]), **skip) == shown[:1]
    assert processing.batch_decode(np.array(prompts[:1]), **skip) == shown[:1]


def test_decoding_what_has_no_image_is_native(processing):
    text = text_of(processing, "how are you?")
    ids = processing.tokenizer(text)["input_ids"]
    for form in (ids, torch.tensor(ids), np.array(ids), ids[5], torch.tensor(ids[5]), []):
        assert processing.decode(form) == processing.tokenizer.decode(form)
    assert processing.batch_decode([ids, []]) == [processing.tokenizer.decode(ids), ""]


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl"])
def test_the_mark_of_another_format_warns(family, policy_for):
    processing = policy_for(family).processing_class
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "<image>\nWhat?"}]}]
    with pytest.warns(UserWarning, match="A prompt contains '<image>', which this model reads as text"):
        processing.apply_chat_template(messages)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        processing.apply_chat_template(user("What?"))
        processing.apply_chat_template([*user("What?"), {"role": "assistant", "content": "<image>"}])


def test_the_mark_of_its_own_format_is_an_error(policy_for):
    processing = policy_for("llava").processing_class
    with pytest.raises(ImageError, match="the text contains '<image>'"):
        processing.apply_chat_template(user("<image> What?"))
