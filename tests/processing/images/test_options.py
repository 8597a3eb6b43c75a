"""Options of a single image: as the stock processor called with them for that image alone, or an error."""

import pytest
import torch

from hf_vlm_rl import ImageError
from hf_vlm_rl.processing.tickets.beside_ids import decode_tickets
from tests.conformance.cases import user
from tests.images import photo

AREA = 28 * 28
# Option -> the stock processor's own arguments.
OPTIONS = {
    "qwen2_vl": [
        ({"max_pixels": 18 * AREA}, {"size": {"shortest_edge": 16 * AREA, "longest_edge": 18 * AREA}})
    ],
    "qwen2_5_vl": [
        ({"max_pixels": 18 * AREA}, {"size": {"shortest_edge": 16 * AREA, "longest_edge": 18 * AREA}}),
        ({"max_pixels": 60 * AREA}, {"size": {"shortest_edge": 16 * AREA, "longest_edge": 60 * AREA}}),
        (
            {"min_pixels": 12 * AREA, "max_pixels": 15 * AREA},
            {"size": {"shortest_edge": 12 * AREA, "longest_edge": 15 * AREA}},
        ),
    ],
    "qwen3_vl": [
        ({"max_pixels": 17 * 1024}, {"size": {"shortest_edge": 16 * 1024, "longest_edge": 17 * 1024}}),
    ],
    "internvl": [
        ({"max_tiles": 2}, {"max_patches": 2}),
        ({"max_num": 3}, {"max_patches": 3}),
        ({"min_num": 4, "max_num": 4}, {"min_patches": 4, "max_patches": 4}),
    ],
}
CASES = [(family, *case) for family, cases in OPTIONS.items() for case in cases]
each = pytest.mark.parametrize(("family", "options", "native"), CASES)


def wide():
    return photo("coffee", (300, 200))


def with_option(options: dict, *others) -> list[dict]:
    (message,) = user("What is it?", *others)
    return [
        message | {"content": [{"type": "image", "image": wide(), **options}, *message["content"]]},
    ]


def encoded(processing, messages) -> tuple[list[int], list]:
    """The ids, and what the native image processor made of each image."""
    batch = processing.apply_chat_template([messages], tokenize=True, return_dict=True)
    tickets = [ticket for ticket, _ in decode_tickets(batch["pixel_values"])]
    return batch["input_ids"][0], [processing.processed(ticket) for ticket in tickets]


def stock(processor, image, **images_kwargs) -> dict:
    text = processor.apply_chat_template(user("What is it?", image), tokenize=False)
    return processor(images=[[image]], text=[text], images_kwargs=images_kwargs, return_tensors="pt")


@each
def test_an_image_is_what_the_stock_call_makes_of_it_alone(
    family, options, native, processing_for, native_processor_for
):
    processing, processor = processing_for(family), native_processor_for(family)
    ids, (image,) = encoded(processing, with_option(options))
    expected = stock(processor, wide(), **native)
    assert ids == expected["input_ids"][0].tolist()
    assert torch.equal(image.inputs["pixel_values"], expected["pixel_values"])
    assert ids != stock(processor, wide())["input_ids"][0].tolist()


@each
def test_other_images_of_the_row_keep_the_processors_settings(
    family, options, native, processing_for, native_processor_for
):
    processing = processing_for(family)
    _, (own, other) = encoded(processing, with_option(options, wide()))
    expected = stock(native_processor_for(family), wide())["pixel_values"]
    assert torch.equal(other.inputs["pixel_values"], expected)
    assert own.inputs["pixel_values"].shape != expected.shape


@pytest.mark.parametrize(
    "text", ["\u2063", "\u2063\u2063", "\u2063{not json}\u2063", '\u2063{"max_pixels": 9}\u2063']
)
def test_invisible_separators_behind_an_image_are_a_text(text, processing_for, native_processor_for):
    processing, native = processing_for("qwen2_5_vl"), native_processor_for("qwen2_5_vl")
    text = native.image_token + text + " what is it?"
    expected = native(images=[[wide()]], text=[text])["input_ids"][0]
    assert processing(images=[[wide()]], text=[text])["input_ids"][0] == list(expected)


@each
def test_options_come_through_text_and_through_a_dict(family, options, native, processing_for):
    """Trainers render a conversation and pass its images on, with or without what stands beside them."""
    processing = processing_for(family)
    messages = with_option(options, photo("cat", (90, 60)))
    expected = processing.apply_chat_template([messages], tokenize=True, return_dict=True)
    text = processing.apply_chat_template(messages, tokenize=False)
    images = [wide(), photo("cat", (90, 60))]
    blank = processing.apply_chat_template(with_option({}, photo("cat", (90, 60))), tokenize=False)
    for call in (
        {"text": [text], "images": [images]},
        {"text": [blank], "images": [[{"image": images[0], **options}, images[1]]]},
        {"text": [text[:-2], "" + text], "images": [images, images]},
    ):
        batch = processing(**call)
        assert batch["input_ids"][-1] == expected["input_ids"][0]
        assert torch.equal(batch["pixel_values"][-2:], expected["pixel_values"])


@pytest.mark.parametrize(("family", "factor"), [("qwen2_5_vl", 28), ("qwen3_vl", 32)])
def test_a_size_is_that_of_process_vision_info(family, factor, processing_for, native_processor_for):
    """It resizes with PIL to the nearest multiples, and the processor is told to leave the image so."""
    options = {"resized_height": 3 * factor - 5, "resized_width": 5 * factor + 9}
    ids, (image,) = encoded(processing_for(family), with_option(options))
    resized = wide().resize((5 * factor, 3 * factor))
    expected = stock(native_processor_for(family), resized, do_resize=False)
    assert image.tokens == 15
    assert ids == expected["input_ids"][0].tolist()
    assert torch.equal(image.inputs["pixel_values"], expected["pixel_values"])


@each
def test_ppo_takes_them_inside_ids(family, options, native, policy_for, native_processor_for, bare_for):
    policy = policy_for(family)
    processing = policy.processing_class
    row = processing.encode_prompt(with_option(options))
    batch = processing.pad([row], return_tensors="pt")
    processor = native_processor_for(family)
    text = processor.apply_chat_template(
        user("What is it?", wide()), tokenize=False, add_generation_prompt=True
    )
    call = processor(images=[[wide()]], text=[text], images_kwargs=native, return_tensors="pt")
    kept = [i for i in range(policy.config.get_text_config().vocab_size) if i not in policy.placeholder_ids]
    with torch.no_grad():
        ours, expected = policy(**batch).logits, bare_for(family)(**call).logits
    torch.testing.assert_close(ours[..., kept], expected[..., kept], atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        (
            "qwen2_5_vl",
            {"max_tiles": 2},
            "'max_tiles'.*takes min_pixels, max_pixels, resized_height, resized_w",
        ),
        ("internvl", {"max_pixels": 999}, "'max_pixels'.*takes min_tiles, max_tiles, min_num, max_num"),
        ("llava", {"max_pixels": 999}, "takes no options"),
        ("qwen2_5_vl", {"pixels": 999}, "'pixels'"),
        ("qwen2_5_vl", {"max_pixels": 0}, "max_pixels=0"),
        ("qwen2_5_vl", {"max_pixels": "9"}, "max_pixels='9'"),
        ("qwen2_5_vl", {"max_pixels": 10}, "min_pixels <= max_pixels"),
        ("qwen2_5_vl", {"resized_height": 100}, "together"),
        ("qwen2_5_vl", {"resized_height": 99, "resized_width": 99, "max_pixels": 99}, "no other option"),
        ("qwen2_5_vl", {"resized_height": 28, "resized_width": 28}, "1 tokens"),
        ("qwen2_5_vl", {"resized_height": 99.5, "resized_width": 99}, "whole number"),
        ("internvl", {"max_num": 2, "max_tiles": 3}, "Give one"),
    ],
)
def test_what_a_family_does_not_take_is_refused(family, options, message, processing_for):
    processing = processing_for(family)
    row = user("What is it?", photo("cat", (90, 60)))
    with pytest.raises(ImageError, match=f"^Row 1: .*{message}|^Row 1, .*{message}"):
        processing.apply_chat_template([row, with_option(options)], tokenize=True, return_dict=True)
    text = processing.apply_chat_template(with_option({}), tokenize=False)
    with pytest.raises(ImageError, match=message):
        processing(text=[text], images=[[{"image": wide(), **options}]])


def test_two_values_of_one_option_are_refused(processing_for):
    block = {"type": "image", "image": {"image": wide(), "max_pixels": 9 * AREA}, "max_pixels": 8 * AREA}
    with pytest.raises(ImageError, match="max_pixels"):
        processing_for("qwen2_5_vl").apply_chat_template([{"role": "user", "content": [block]}])


def test_what_openai_asks_of_its_servers_says_nothing(processing_for):
    processing = processing_for("qwen2_5_vl")
    blocks = [
        {"type": "image_url", "image_url": {"url": wide(), "detail": "low"}},
        {"type": "text", "text": "a"},
    ]
    plain = [{"type": "image", "image": wide()}, {"type": "text", "text": "a"}]
    ids = [
        processing.apply_chat_template([{"role": "user", "content": each}], tokenize=True, return_dict=True)
        for each in (blocks, plain)
    ]
    assert torch.equal(ids[0]["pixel_values"], ids[1]["pixel_values"])
