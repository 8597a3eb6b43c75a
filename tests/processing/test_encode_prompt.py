"""What `encode_prompt` notes with a row, and what `pad` makes of it."""

import numpy as np
import pytest
import torch

from hf_vlm_rl import TicketError
from hf_vlm_rl.processing.encoded_rows import read_rows
from tests.processing.prompts import CAT, COFFEE, user


def tickets_of(processing, row) -> list[int]:
    return processing.codec.read(row["input_ids"], lambda ticket: processing.processed(ticket).tokens)[1]


def test_rows_that_ask_different_things_of_one_image_have_one_source(processing):
    rows = [
        processing.encode_prompt(user(CAT, "what?"), answer="cat"),
        processing.encode_prompt(user(CAT, "what?"), answer="tom"),
        processing.encode_prompt(user(CAT, "who is it?"), answer="tom"),
    ]
    found = [tickets_of(processing, row)[0] for row in rows]
    assert len(set(found)) == 3
    (source,) = {processing.image_store.source(ticket) for ticket in found}
    assert processing.image_store.source(source) == source
    assert processing.image_store.row(source).columns == {}


def test_an_image_with_two_questions_goes_through_the_tower_once(policy_for):
    policy = policy_for("internvl")
    processing = policy.processing_class
    rows = [processing.encode_prompt(user(CAT, text)) for text in ("what?", "who is it?")]
    policy.freeze()
    with torch.no_grad():
        for row in rows:
            policy(input_ids=torch.tensor([row["input_ids"]]))
    assert policy.sharing_report()["images_encoded"] == 1


def test_a_row_is_taken_apart_into_prompt_and_answer(processing):
    conversation = [*user(COFFEE, CAT, "what?"), {"role": "assistant", "content": "a cup"}]
    row = processing.encode_prompt(conversation, answer="a cup")
    prompt = processing.encode_prompt(conversation[:1], answer="a cup")["input_ids"]
    ids = torch.tensor([row["input_ids"]])
    assert row["input_ids"][: len(prompt)] == prompt  # the same tickets: the prompt's note
    (read,) = read_rows(processing, ids, torch.ones_like(ids))
    assert read.completion_ids == row["input_ids"][len(prompt) :]
    assert "a cup" in processing.decode(read.completion_ids)
    blocks = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "what?"}]
    assert read.note.prompt == [{"role": "user", "content": blocks}]
    assert read.note.columns == {"answer": "a cup"}


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl", "idefics3"])
def test_a_text_row_is_known_once_it_was_padded(processing_for, family):
    processing = processing_for(family)
    row = processing.encode_prompt(user("how are you?"), answer="fine")
    ids = torch.tensor([[*row["input_ids"], 20, 21]])
    with pytest.raises(TicketError, match=r"Row 0: it has no image and begins with no prompt"):
        read_rows(processing, ids, torch.ones_like(ids))
    padded = processing.pad([row], return_tensors="pt")
    assert set(padded) == {"input_ids", "attention_mask"}
    (read,) = read_rows(processing, ids, torch.ones_like(ids))
    assert read.completion_ids == [20, 21]
    assert read.note.columns == {"answer": "fine"}


@pytest.mark.parametrize("form", ["image", "path", "dict", "array", "arrays", "tensor", "generator", "bytes"])
def test_one_image_or_several_come_in_any_form(processing_for, tmp_path, form):
    processing = processing_for("internvl")
    CAT.save(tmp_path / "cat.png")
    pixels = np.asarray(CAT)
    forms = {
        "image": CAT,
        "path": str(tmp_path / "cat.png"),
        "dict": {"path": str(tmp_path / "cat.png")},
        "array": pixels,
        "arrays": pixels[None],
        "tensor": torch.tensor(pixels)[None],
        "generator": (image for image in [CAT]),
        "bytes": (tmp_path / "cat.png").read_bytes(),
    }
    expected = processing.encode_prompt(user("what?"), images=[CAT])
    assert processing.encode_prompt(user("what?"), images=forms[form]) == expected


def test_an_answer_without_the_thought_that_a_generation_prompt_opens(processing_for):
    """As Qwen3.5's template, which writes `<think>` for `generate` alone."""
    processing = processing_for("internvl")
    opens = "{%- if add_generation_prompt %}{{ '<think> ' }}{% endif %}"
    processing.chat_template = processing.tokenizer.chat_template = processing.chat_template + opens
    conversation = [*user("how are you?"), {"role": "assistant", "content": "fine"}]
    prompt, row = processing.encode_prompt(conversation[:1]), processing.encode_prompt(conversation)
    assert row["input_ids"][: len(prompt["input_ids"])] != prompt["input_ids"]
    assert processing.pad([row])["input_ids"] == [row["input_ids"]]
    with pytest.raises(TicketError, match="was truncated or edited"):
        processing.pad([row | {"input_ids": row["input_ids"][3:]}])


@pytest.mark.parametrize("form", ["rows", "columns", "one row"])
@pytest.mark.parametrize("content", [(CAT, "what?"), ("no image, what now?",)], ids=["image", "text"])
def test_pad_refuses_changed_ids_in_every_form_it_takes(processing_for, form, content):
    processing = processing_for("internvl")
    row = processing.encode_prompt(user(*content))
    bad = row | {"input_ids": row["input_ids"][2:], "attention_mask": row["attention_mask"][2:]}

    def shaped(one):
        if form == "one row":
            return dict(one)
        return [one] if form == "rows" else {key: [value] for key, value in one.items()}

    assert "ids_checksum" not in processing.pad(shaped(row))
    with pytest.raises(TicketError, match="Row 0 of the batch"):
        processing.pad(shaped(bad))
