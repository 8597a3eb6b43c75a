"""Calling the processing class: native ids, tickets for pixels, and errors that name the row."""

import pytest
import torch
from transformers import AutoTokenizer

from hf_vlm_rl import ImageError, UnsupportedModelError
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets
from tests.processing.prompts import CAT, COFFEE, ROCKET, same_images, text_of, tickets, user

TEXT = ("input_ids", "attention_mask")


def ids_of(native, text, images) -> list[int]:
    return native(text=[text], images=[images] if images else None)["input_ids"][0]


def test_ids_are_native_and_pixels_are_tickets_in_row_order(processing, native_processor_for, family, store):
    native = native_processor_for(family)
    texts = [text_of(processing, None, "one"), text_of(processing, None, "and", None, "two")]
    batch = processing(images=[[CAT], [COFFEE, ROCKET]], text=texts)
    assert [list(row) for row in batch["input_ids"]] == [
        list(ids_of(native, texts[0], [CAT])),
        list(ids_of(native, texts[1], [COFFEE, ROCKET])),
    ]
    assert batch["attention_mask"] == [[1] * len(row) for row in batch["input_ids"]]
    assert same_images(store, tickets(batch), (CAT, COFFEE, ROCKET))
    assert (batch["pixel_values"].dtype, batch["image_grid_thw"].dtype) == (torch.uint8, torch.int64)
    assert batch["image_grid_thw"].tolist() == [[1, 1, 1]] * 3
    assert set(batch) == {"input_ids", "attention_mask", "pixel_values", "image_grid_thw"}


def test_prefix_attention_alone_adds_the_length_of_the_tail(processing, family):
    text = text_of(processing, None, "how many cats are there?")
    batch = processing(images=CAT, text=text)
    ids, placeholder = batch["input_ids"][0], processing.codec.placeholder_id
    tail = len(ids) - 1 - max(index for index, token in enumerate(ids) if token == placeholder)
    assert decode_tickets(batch["pixel_values"])[0][1] == (tail if family == "paligemma" else None)


def test_every_nesting_of_images_gives_the_same_batch(processing):
    one, none = text_of(processing, None, "one"), text_of(processing, "none")
    two = text_of(processing, None, None, "two")
    texts = [one, none, two]
    expected = processing(images=[[CAT], [], [COFFEE, ROCKET]], text=texts)
    for images in (
        [CAT, COFFEE, ROCKET],
        (CAT, COFFEE, ROCKET),
        [[CAT], None, [COFFEE, ROCKET]],
        [CAT, None, (COFFEE, ROCKET)],
    ):
        batch = processing(images=images, text=texts)
        assert batch["input_ids"] == expected["input_ids"]
        assert torch.equal(batch["pixel_values"], expected["pixel_values"])
    alone = processing(images=CAT, text=one)
    assert alone["input_ids"] == expected["input_ids"][:1]
    assert torch.equal(alone["pixel_values"], expected["pixel_values"][:1])


def test_rows_that_repeat_are_what_each_is_alone(processing):
    text, other = text_of(processing, None, "one"), text_of(processing, None, "another one")
    # Copies, as trainers decode the image of a repeated row anew, and the same text with another image.
    rows = [(text, CAT), (text, CAT.copy()), (text, ROCKET), (text, CAT), (other, CAT), (other, CAT.copy())]
    batch = processing(images=[[image] for _, image in rows], text=[text for text, _ in rows], padding=True)
    for index, (text, image) in enumerate(rows):
        alone = processing(images=image, text=text)
        real = [token for token, seen in zip(*(batch[key][index] for key in TEXT), strict=True) if seen]
        assert real == list(alone["input_ids"][0])
        assert torch.equal(batch["pixel_values"][index], alone["pixel_values"][0])


@pytest.mark.parametrize("images", [None, [], [[], []], [None, None], [[], None]])
def test_text_only_rows_have_no_tickets(processing, images):
    texts = [text_of(processing, "first"), text_of(processing, "second?")]
    batch = processing(images=images, text=texts)
    assert batch["input_ids"] == [processing.tokenizer(text)["input_ids"] for text in texts]
    if images is None:
        assert set(batch) == {"input_ids", "attention_mask"}
    else:  # TRL >= 1.12 reads pixel_values of every batch that has an image column.
        assert batch["pixel_values"].shape[0] == 0
        assert batch["image_grid_thw"].shape == (0, 3)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (None, r"Row 0: 1 image placeholders .* but 0 images"),
        ([CAT], r"Got 1 images for 2 rows with \[1, 2\] image placeholders"),
        ([CAT] * 4, r"Got 4 images for 2 rows with \[1, 2\]"),
        (CAT, r"Got 1 images for 2 rows"),
        ([[CAT], [CAT]], r"Row 1: 2 image placeholders .* but 1 images"),
        ([[CAT, CAT], [CAT]], r"Row 0: 1 image placeholders .* but 2 images"),
        ([None, [CAT, CAT]], r"Row 0: 1 image placeholders .* but 0 images"),
        ([[CAT]], r"Got images for 1 rows but text for 2"),
        ([[CAT], [CAT, CAT], []], r"Got images for 3 rows but text for 2"),
    ],
)
def test_images_that_do_not_fit_the_placeholders_are_refused(processing, images, message):
    texts = [text_of(processing, None, "one"), text_of(processing, None, None, "two")]
    with pytest.raises(ImageError, match=message):
        processing(images=images, text=texts)


def test_an_unusable_image_names_its_row_and_place(processing, tmp_path):
    texts = [text_of(processing, None, "one"), text_of(processing, None, None, "two")]
    with pytest.raises(ImageError, match=r"Row 1, image 1: Cannot read the image file .*gone\.png"):
        processing(images=[[CAT], [CAT, tmp_path / "gone.png"]], text=texts)


def test_a_literal_placeholder_in_plain_text_names_the_row(processing):
    texts = [text_of(processing, "fine"), f"what does {processing.image_token} mean?"]
    with pytest.raises(ImageError, match=r"Row 1: 1 image placeholders .* but 0 images"):
        processing(text=texts)


def test_missing_text_is_refused(processing):
    with pytest.raises(ValueError, match="Got no text"):
        processing(images=[CAT])


def test_videos_without_a_placeholder_are_refused(processing):
    if processing.state.videos.refusal:
        with pytest.raises(UnsupportedModelError, match=r"^Got a video\."):
            processing(text="hi", videos=[[CAT]])
        return
    with pytest.raises(ImageError, match=r"Row 0: 0 video placeholders .* but 1 videos"):
        processing(text="hi", videos=[[CAT]])
    with pytest.raises(ImageError, match=r"Pass a list for each row"):
        processing(text="hi", videos=[[CAT], [CAT]])


def test_truncation_that_cuts_an_image_is_refused(processing):
    texts = [text_of(processing, "a"), text_of(processing, None, "one")]
    length = len(processing(images=[CAT], text=texts)["input_ids"][1])
    with pytest.raises(ImageError, match=r"Row 1.*(truncat|max_length)"):
        processing(images=[CAT], text=texts, truncation=True, max_length=length // 2)


def test_truncation_of_text_alone_is_native(processing, checkpoint, family):
    native = AutoTokenizer.from_pretrained(checkpoint(family))
    text = text_of(processing, "word " * 40)
    arguments = {"truncation": True, "max_length": 17}
    batch = processing(text=[text], **arguments)
    assert batch["input_ids"] == [native(text, **arguments)["input_ids"]]
    assert len(batch["input_ids"][0]) == 17


@pytest.mark.parametrize("special", [True, False])
def test_special_tokens_are_added_where_stock_adds_them(processing, native_processor_for, family, special):
    text = processing.apply_chat_template(user(CAT, "what is it?"), add_generation_prompt=True)
    options = {"images": [[CAT]], "text": [text], "add_special_tokens": special}
    native = native_processor_for(family)(**options, return_tensors="pt")
    assert processing(**options)["input_ids"] == native["input_ids"].tolist()


def test_lists_or_tensors_as_asked(processing):
    texts = [text_of(processing, None, "one"), text_of(processing, None, "a longer one")]
    lists = processing(images=[CAT, CAT], text=texts)
    assert all(isinstance(row, list) for row in lists["input_ids"] + lists["attention_mask"])
    assert isinstance(lists["pixel_values"], torch.Tensor)
    tensors = processing(images=[CAT, CAT], text=texts, padding=True, return_tensors="pt")
    assert all(isinstance(value, torch.Tensor) for value in tensors.values())
    assert torch.equal(tensors["pixel_values"], lists["pixel_values"])
    for index, row in enumerate(lists["input_ids"]):
        mask = tensors["attention_mask"][index].bool()
        assert tensors["input_ids"][index][mask].tolist() == row


PADDINGS = {
    "longest": {"padding": True},
    "max_length": {"padding": "max_length", "max_length": 300},
    "multiple": {"padding": True, "pad_to_multiple_of": 64},
    "right": {"padding": True, "padding_side": "right"},
    "left": {"padding": True, "padding_side": "left"},
    "as text_kwargs": {"text_kwargs": {"padding": "max_length", "max_length": 300, "padding_side": "right"}},
}


@pytest.mark.parametrize("how", PADDINGS)
def test_padding_is_what_the_tokenizer_does(processing, how):
    texts = [text_of(processing, None, "one"), text_of(processing, None, "a longer one, it seems")]
    batch = processing(images=[CAT, CAT], text=texts, return_tensors="pt", **PADDINGS[how])
    rows = processing(images=[CAT, CAT], text=texts)
    own = {key: list(rows[key]) for key in ("input_ids", "attention_mask")}
    arguments = PADDINGS[how].get("text_kwargs", PADDINGS[how])
    expected = processing.tokenizer.pad(own, return_tensors="pt", **arguments)
    assert torch.equal(batch["input_ids"], expected["input_ids"])
    assert torch.equal(batch["attention_mask"], expected["attention_mask"])
    assert "multiple" not in how or batch["input_ids"].shape[1] % 64 == 0
    assert "max_length" not in str(arguments) or batch["input_ids"].shape[1] == 300


@pytest.mark.parametrize("side", ["left", "right"])
def test_masks_and_offsets_are_padded_with_the_ids(processing_for, side):
    processing = processing_for("internvl")
    texts = [text_of(processing, None, "one"), text_of(processing, None, "a longer one, it seems")]
    batch = processing(
        images=[CAT, CAT],
        text=texts,
        padding=True,
        padding_side=side,
        return_tensors="pt",
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
    )
    rows, columns = batch["input_ids"].shape
    assert batch["special_tokens_mask"].shape == (rows, columns)
    assert batch["offset_mapping"].shape == (rows, columns, 2)
    padded = batch["attention_mask"] == 0
    assert padded[0].any()
    assert (batch["special_tokens_mask"][padded] == 1).all()
    assert (batch["offset_mapping"][padded] == 0).all()


def test_no_rows_at_all_are_refused(processing_for):
    with pytest.raises(ValueError, match="empty list of texts"):
        processing_for("internvl")(text=[])
