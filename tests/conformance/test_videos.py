"""The contract for videos: tickets give what the stock model makes of its native tensors."""

import numpy as np
import pytest
import torch

from hf_vlm_rl import ImageError, UnsupportedModelError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.videos import asked, image, moving, native, video

from .cases import tickets
from .rounding import assert_equal, rtol_of_rows

VIDEO_FAMILIES = (
    "internvl",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "llava_onevision",
    "smolvlm",
    "qwen3_5",
    "qwen3_vl_moe",
    "glm4v",
    "llava_next_video",
    "video_llama_3",
)
NO_VIDEOS = tuple(family for family in FAMILIES if family not in VIDEO_FAMILIES)

# In these, stock's own forward refuses an image beside a video: both have the same placeholder, and it counts
# the features of one kind.
STOCK_REFUSES_BOTH = ("glm4v", "smolvlm")

# Stock's processors stack clips of different lengths, or its forward counts the features of one kind.
STOCK_TAKES_NO_MIXED_BATCH = (*STOCK_REFUSES_BOTH, "internvl", "llava_onevision", "llava_next_video")


def beside(rows):
    """The same rows with every video in an image block, as trainers put it there from a column of images."""
    return [
        [
            message
            | {
                "content": [
                    {"type": "image", "image": block} if block["type"] == "video" else block
                    for block in message["content"]
                ]
            }
            for message in row
        ]
        for row in rows
    ]


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits[batch["attention_mask"].bool()]


def short():
    return asked(video(moving("astronaut")))


def long():
    return asked(video(moving("coffee", 8)), text="Which way does the camera go in this one?")


def mixed():
    return [short(), asked(text="Say hello to me."), long(), asked(image("cat")), short()]


@pytest.mark.parametrize("make", [short, long])
@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_tickets_give_what_native_tensors_give(family, make, policy_for, bare_for, native_processor_for):
    policy = policy_for(family)
    ours = tickets(policy.processing_class, beside([make()]))
    stock = native(native_processor_for(family), [make()])
    assert torch.equal(ours["input_ids"], stock["input_ids"])
    assert ours["pixel_values"].shape == (1, 15)
    assert_equal(logits(policy, ours), logits(bare_for(family), stock))


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_rows_with_a_video_go_beside_rows_without(family, policy_for, bare_for, native_processor_for):
    policy, bare, processor = policy_for(family), bare_for(family), native_processor_for(family)
    rows = mixed()
    batch = tickets(policy.processing_class, beside(rows))
    with torch.no_grad():
        found = policy(**batch).logits
    for index, row in enumerate(rows):
        seen = batch["attention_mask"][index].bool()
        expected = logits(bare, native(processor, [row]))
        assert_equal(found[index][seen], expected, rtol_of_rows(policy))


@pytest.mark.parametrize(
    "family", [name for name in VIDEO_FAMILIES if name not in STOCK_TAKES_NO_MIXED_BATCH]
)
def test_a_batch_of_rows_with_and_without_a_video_is_that_of_stock(
    family, policy_for, bare_for, native_processor_for
):
    ours = tickets(policy_for(family).processing_class, beside(mixed()))
    stock = native(native_processor_for(family), mixed())
    assert torch.equal(ours["input_ids"], stock["input_ids"])
    assert_equal(logits(policy_for(family), ours), logits(bare_for(family), stock))


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_images_and_videos_of_one_conversation_keep_their_order(
    family, policy_for, bare_for, native_processor_for
):
    policy = policy_for(family)
    clip, cat = video(moving("astronaut")), image("cat")
    rows = [asked(clip, cat), asked(cat, clip)]
    found = [logits(policy, tickets(policy.processing_class, beside([row]))) for row in rows]
    if family in STOCK_REFUSES_BOTH:
        with pytest.raises(ValueError, match="do not match"):
            logits(bare_for(family), native(native_processor_for(family), [rows[0]]))
        swapped = tickets(policy.processing_class, beside([asked(cat, video(moving("coffee")))]))
        assert not torch.allclose(found[1], logits(policy, swapped), atol=1e-3)
        return
    for row, ours in zip(rows, found, strict=True):
        expected = logits(bare_for(family), native(native_processor_for(family), [row]))
        assert_equal(ours, expected)


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_blocks_put_their_tickets_inside_the_ids(family, policy_for):
    policy = policy_for(family)
    processing = policy.processing_class
    rows = [short(), asked(image("cat"), video(moving("coffee"))), asked(text="Say hello to me.")]
    inside, clean = tickets(processing, rows), tickets(processing, beside(rows))
    assert inside["input_ids"].shape == clean["input_ids"].shape
    assert not torch.equal(inside["input_ids"], clean["input_ids"])
    assert len(inside["pixel_values"]) == 1  # of the image alone
    assert processing.batch_decode(inside["input_ids"]) == processing.batch_decode(clean["input_ids"])
    assert torch.equal(logits(policy, inside), logits(policy, clean))


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_encoded_prompts_give_the_same(family, policy_for):
    policy = policy_for(family)
    processing = policy.processing_class
    rows = [short(), asked(image("cat"), video(moving("coffee"))), asked(text="Say hello to me.")]
    encoded = [processing.encode_prompt(row, answer="left") for row in rows]
    inside = processing.pad(encoded, padding_side="left", return_tensors="pt")
    expected = logits(policy, tickets(processing, beside(rows)))
    expected[..., list(policy.placeholder_ids)] = -1e4
    assert torch.equal(logits(policy, dict(inside)), expected)


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_generate_writes_what_stock_writes(family, policy_for, bare_for, native_processor_for):
    policy = policy_for(family)
    never = {"suppress_tokens": list(policy.placeholder_ids), "do_sample": False, "max_new_tokens": 5}
    for row in (short(), long()):
        stock = native(native_processor_for(family), [row])
        expected = bare_for(family).generate(**stock, **never)[:, stock["input_ids"].shape[1] :]
        for rows in ([row], beside([row])):
            batch = tickets(policy.processing_class, rows)
            output = policy.generate(**batch, do_sample=False, max_new_tokens=5)
            assert torch.equal(output[:, batch["input_ids"].shape[1] :], expected)
            assert torch.equal(output[:, : batch["input_ids"].shape[1]], batch["input_ids"])


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_another_clip_another_order_and_another_rate_are_seen(family, policy_for):
    policy = policy_for(family)
    clip = moving("astronaut")
    clips = [video(clip), video(moving("coffee")), video(clip[::-1])]
    outputs = [logits(policy, tickets(policy.processing_class, beside([asked(block)]))) for block in clips]
    for other in outputs[1:]:
        assert (outputs[0] - other).abs().max() > 1e-3
    # Frames are read as images one by one here, so that only what is written of time could differ.
    store = policy.processing_class.image_store
    one, two = [
        policy.processing_class(
            images=[[video(clip, fps)]], text=[policy.processing_class.state.videos.placeholder]
        )["pixel_values"]
        for fps in (1.0, 2.0)
    ]
    assert not torch.equal(one, two)
    assert store is policy.processing_class.image_store


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_a_frozen_tower_sees_a_video_once(family, policy_for):
    policy = policy_for(family).requires_grad_(False)
    rows = beside([short(), short(), asked(video(moving("astronaut")), text="And this?"), long()])
    batch = tickets(policy.processing_class, rows)
    expected = logits(policy_for(family), batch)
    for _ in range(2):
        assert_equal(logits(policy, batch), expected)
    policy.generate(**batch, max_new_tokens=2)
    logits(policy, tickets(policy.processing_class, [short()]))  # inside the ids
    assert policy.sharing_report()["images_encoded"] == 2


@pytest.mark.parametrize("family", VIDEO_FAMILIES)
def test_sharing_on_equals_off_in_values_and_gradients(family, policy_for):
    def run(sharing):
        policy = policy_for(family)
        policy.base_model.sharing.mode = sharing
        prompts = beside([short(), short(), short(), asked(video(moving("coffee")), image("cat"))])
        batch = tickets(policy.processing_class, prompts)
        generator = torch.Generator().manual_seed(0)
        answers = torch.randint(5, 50, (4, 6), generator=generator)
        batch["input_ids"] = torch.cat([batch["input_ids"], answers], dim=1)
        batch["attention_mask"] = torch.cat([batch["attention_mask"], torch.ones_like(answers)], dim=1)
        output = policy(**batch, use_cache=False).logits[:, -7:]
        output.square().mean().backward()
        gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
        return output.detach(), gradients, policy

    (values, gradients, policy), (plain, plain_gradients, _) = run(True), run(False)
    report = policy.sharing_report()
    assert report["tokens_computed"] < report["tokens"], report["not_shared"]
    assert_equal(values, plain, rtol_of_rows(policy))
    assert gradients.keys() == plain_gradients.keys()
    largest = max(gradient.abs().max() for gradient in plain_gradients.values())
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-4 * largest, rtol=0, msg=name)


@pytest.mark.parametrize("family", NO_VIDEOS)
def test_other_families_refuse_with_a_reason(family, policy_for):
    processing = policy_for(family).processing_class
    assert processing.state.videos.refusal
    for rows in ([short()], beside([short()])):
        with pytest.raises(UnsupportedModelError, match=r"^Got a video\. .*Expected images"):
            tickets(processing, rows)
    with pytest.raises(UnsupportedModelError, match=r"^Got a video\. .*Expected images"):
        processing.encode_prompt(short())


def test_a_prompt_with_native_video_tensors_is_left_to_stock(policy_for, bare_for, native_processor_for):
    batch = native(native_processor_for("qwen2_5_vl"), [short()])
    assert torch.equal(logits(policy_for("qwen2_5_vl"), batch), logits(bare_for("qwen2_5_vl"), batch))


def test_the_same_frames_as_list_and_array_have_one_ticket(policy_for):
    processing = policy_for("qwen2_5_vl").processing_class
    clip = moving("cat")
    forms = [clip, list(clip), torch.tensor(clip).permute(0, 3, 1, 2)]
    made = [tickets(processing, beside([asked(video(clip) | {"video": form})])) for form in forms]
    for batch in made[1:]:
        assert torch.equal(batch["pixel_values"], made[0]["pixel_values"])


def test_frames_of_floats_are_refused_since_stock_divides_them_once_more(policy_for):
    clip = moving("cat").astype(np.float32) / 255
    with pytest.raises(ImageError, match=r"frame 0: Got an image array of dtype float32\. Expected uint8"):
        tickets(policy_for("qwen2_5_vl").processing_class, beside([asked(video(clip))]))


# Qwen3-VL samples videos unless it is told otherwise.
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_frames_that_were_sampled_before_are_taken_as_they_are(
    family, policy_for, bare_for, native_processor_for
):
    clip = moving("astronaut")
    facts = {"fps": 24.0, "total_num_frames": 48, "frames_indices": [0, 12, 24, 36]}
    block = {"type": "video", "video": clip, "video_metadata": facts}
    ours = tickets(policy_for(family).processing_class, beside([asked(block)]))
    stock = native(native_processor_for(family), [asked(block)])
    assert torch.equal(ours["input_ids"], stock["input_ids"])
    assert_equal(logits(policy_for(family), ours), logits(bare_for(family), stock))


def test_frames_that_were_sampled_before_are_not_sampled_again(policy_for):
    processing = policy_for("qwen3_vl").processing_class
    facts = {"fps": 24.0, "total_num_frames": 48, "frames_indices": [0, 12, 24, 36]}
    block = {"type": "video", "video": moving("astronaut"), "video_metadata": facts}
    for options in ({"fps": 1.0}, {"num_frames": 4}, {"do_sample_frames": True}):
        with pytest.raises(ImageError, match="Got 4 frames, sampled of 48 as frames_indices says"):
            tickets(processing, beside([asked(block | options)]))
    del facts["frames_indices"]
    with pytest.raises(ImageError, match="Got 4 frames of a video of total_num_frames=48"):
        tickets(processing, beside([asked(block)]))


def test_tickets_inside_beside_native_video_tensors_are_refused(policy_for, native_processor_for):
    policy = policy_for("qwen2_5_vl")
    batch = native(native_processor_for("qwen2_5_vl"), [short()])
    encoded = policy.processing_class.encode_prompt(asked(image("cat"), text="What is it?"))
    ids = torch.tensor([encoded["input_ids"]])
    pixels = {name: batch[name] for name in ("pixel_values_videos", "video_grid_thw")}
    with pytest.raises(ImageError, match="tickets inside the ids beside native tensors of videos"):
        policy(input_ids=ids, attention_mask=torch.ones_like(ids), **pixels)
