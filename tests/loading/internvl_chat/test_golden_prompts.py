"""Prompts, ids, tiles and pixels equal those of the original code."""

import hashlib
import json

import numpy as np
import pytest
import torch
from PIL import Image

from hf_vlm_rl import AutoVLMPolicy, ImageError
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets

from .golden import DATA, NAMES, NOT_BY_BLOCKS, QWEN2, chat_cases, directory, expanded, photo, read, user

CASES = [case for case in chat_cases() if case.name != NOT_BY_BLOCKS]


def sha256(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels, dtype=np.float32).tobytes()).hexdigest()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_prompt_text(case, original):
    processing = original(case.checkpoint).processing_class
    text = processing.apply_chat_template(case.messages(), add_generation_prompt=True)
    # The original's tokenizer puts BOS before the text; here the template writes it.
    bos = processing.bos_token if processing.tokenizer("")["input_ids"] else ""
    assert text.startswith(bos)
    assert expanded(text.removeprefix(bos), case) == case.data["prompt"]
    assert processing.tokenizer(case.data["prompt"])["input_ids"] == case.data["input_ids"]


@pytest.mark.parametrize("case", [case for case in CASES if len(case.max_tiles) < 2], ids=str)
def test_input_ids_and_pixel_values(case, original):
    processing = original(case.checkpoint, max(case.max_tiles, default=12)).processing_class
    batch = processing.apply_chat_template(
        case.messages(), add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    assert batch["input_ids"].tolist() == [case.data["input_ids"]]
    tickets = [ticket for ticket, _ in decode_tickets(batch.get("pixel_values")) or []]
    assert len(tickets) == len(case.data["images"])
    tiles = [processing.processed(ticket).inputs["pixel_values"] for ticket in tickets]
    assert [len(own) for own in tiles] == case.data["num_patches_per_image"]
    if tiles:
        assert sha256(torch.cat(tiles).numpy()) == case.arrays["pixel_values_sha256"].tobytes().hex()


@pytest.mark.parametrize("name", NAMES)
def test_training_format_conversations(name, original):
    for kind, case in read(name, "train_conversations.json").items():
        images = [photo(image["file"]) for image in case["images"]]
        messages = []
        for turn in case["conversations"]:
            if turn["from"] == "human":
                messages.append(user(turn["value"], images))
            else:
                role = "assistant" if turn["from"] == "gpt" else turn["from"]
                messages.append({"role": role, "content": turn["value"]})
        limits = {image["max_num"] for image in case["images"]}
        processing = original(name, max(limits, default=12)).processing_class
        if len(limits) < 2:
            batch = processing.apply_chat_template(messages, tokenize=True, return_dict=True)
            assert batch["input_ids"][0] == case["input_ids"], kind


@pytest.mark.parametrize("name", NAMES)
def test_tokenizer(name, original):
    tokenizer = original(name).processing_class.tokenizer
    for case in read(name, "tokenizer_cases.json"):
        if "[UNUSED_TOKEN" in case["text"] or "\0" in case["text"]:
            continue  # differences that are known and harmless; no prompt has these strings
        assert tokenizer(case["text"])["input_ids"] == case["ids"], case["text"]
        plain = tokenizer(case["text"], add_special_tokens=False)["input_ids"]
        assert plain == case["ids_no_special"], case["text"]
        assert tokenizer.convert_ids_to_tokens(plain) == case["tokens"]
        assert tokenizer.decode(case["ids"], skip_special_tokens=True) == case["decode_skip_special"]


def test_a_literal_image_tag_stays_text_and_a_placeholder_is_refused(original):
    for name in NAMES:
        processing = original(name).processing_class
        question = "What does <image> mean in HTML?"
        text = processing.apply_chat_template([{"role": "user", "content": question}])
        assert question in text
        ids = processing(text=text)["input_ids"][0]
        assert question in processing.decode(ids)
        with pytest.raises(ImageError, match="<IMG_CONTEXT>"):
            processing.apply_chat_template([{"role": "user", "content": "a <IMG_CONTEXT> b"}])


def test_bos_is_there_once_however_the_prompt_is_tokenized(original):
    """TRL takes the template's text and tokenizes it without special tokens, so the template writes it."""
    processing = original(NAMES[0]).processing_class
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    for conversation in (messages, messages[1:]):
        text = processing.apply_chat_template(conversation, add_generation_prompt=True)
        expected = processing(text=text.removeprefix(processing.bos_token))["input_ids"]
        assert expected[0].count(processing.bos_token_id) == 1
        assert processing(text=text, add_special_tokens=False)["input_ids"] == expected
        whole = processing.apply_chat_template(
            conversation, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        assert whole["input_ids"] == expected
    answer = processing(text="Hello.<|im_end|>", add_special_tokens=False)["input_ids"][0]
    assert processing.bos_token_id not in answer


GRIDS = json.loads((DATA / "preprocess" / "grids.json").read_text())


def test_grids_of_two_thousand_sizes(original):
    processor = original(QWEN2).processing_class.native_image_processor
    for size, least, most, width, height, columns, rows in GRIDS["rows"]:
        settings = {
            "patch_size": {"height": size, "width": size},
            "min_patches": least,
            "max_patches": most,
        }
        tiles = columns * rows + (columns * rows > 1)
        assert processor.get_number_of_image_patches(height, width, settings) == tiles


@pytest.mark.parametrize(
    "tile",
    json.loads((DATA / "preprocess" / "tiles.json").read_text()),
    ids=lambda tile: f"{tile['file']}-{tile['image_size']}-{tile['max_num']}",
)
def test_tiles(tile, original):
    processor = original(QWEN2).processing_class.native_image_processor
    side = tile["image_size"]
    pixels = processor(
        photo(tile["file"]),
        size={"height": side, "width": side},
        max_patches=tile["max_num"],
        return_tensors="np",
    )["pixel_values"]
    assert len(pixels) == tile["num_tiles"]
    assert sha256(pixels) == tile["pixel_values_f32_sha256"]


MODES = json.loads((DATA / "preprocess" / "modes.json").read_text())


@pytest.mark.parametrize("name", sorted(MODES["files"]))
def test_image_modes(name):
    policy = AutoVLMPolicy.from_pretrained(directory(NAMES[0]), max_tiles=MODES["max_num"])
    processing = policy.processing_class
    image = Image.open(DATA / "preprocess" / "modes" / name)
    if MODES["files"][name]["exif_orientation"]:
        # The one intended difference: this package turns pictures upright, the original does not.
        image.getexif().clear()
        image = Image.frombytes(image.mode, image.size, image.tobytes())
    elif image.mode in ("LA", "RGBA"):
        # The original reads files, and drops their transparency: so does a path here. An image that is handed
        # over is laid on white, as transformers' processors do.
        image = DATA / "preprocess" / "modes" / name
    batch = processing(images=image, text="<IMG_CONTEXT>", return_tensors="pt")
    ((ticket, _),) = decode_tickets(batch["pixel_values"])
    expected = np.load(DATA / "preprocess" / "modes.npz")[name]
    assert np.array_equal(processing.processed(ticket).inputs["pixel_values"].numpy(), expected)
