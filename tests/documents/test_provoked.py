"""Mistakes end with the messages that docs/troubleshooting.md quotes."""

import copy

import pytest
from peft import get_peft_model

from hf_vlm_rl import AutoVLMPolicy, BoxCoordinates, ImageStore
from hf_vlm_rl.rewards import exact_match_reward, iou_reward
from tests.documents.test_troubleshooting import OWN, pattern
from tests.images import photo

CAT = photo("cat", (112, 112))


@pytest.fixture
def policy(policy_for):
    return policy_for("qwen2_5_vl")


@pytest.fixture
def encode(policy):
    """`encode(text, images)`: the processing class."""
    return lambda text, images=None, **options: policy.processing_class(images, text, **options)


@pytest.fixture
def mark(policy):
    return policy.processing_class.image_token


def no_family(tmp_path, **_):
    (tmp_path / "config.json").write_text('{"model_type": "llava_llama"}')
    AutoVLMPolicy.from_pretrained(tmp_path)


def an_option_of_another_family(checkpoint, **_):
    AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), max_tiles=2)


def an_untrained_adapter(policy, checkpoint, tmp_path, **_):
    get_peft_model(copy.deepcopy(policy), policy.lora_config(r=2)).save_pretrained(tmp_path)
    AutoVLMPolicy.from_pretrained(tmp_path, base_model=checkpoint("qwen2_5_vl"))


def an_adapter_whose_base_is_gone(policy, tmp_path, **_):
    model = get_peft_model(copy.deepcopy(policy), policy.lora_config(r=2, init_lora_weights=False))
    model.peft_config["default"].base_model_name_or_path = "/gone/base"
    model.save_pretrained(tmp_path)
    AutoVLMPolicy.from_pretrained(tmp_path)


def ids_without_their_images(policy, encode, mark, **_):
    policy(input_ids=encode([f"{mark} What is it?"], CAT, return_tensors="pt")["input_ids"])


def a_length_limit(policy_for, **_):
    processing = policy_for("idefics3").processing_class
    processing(CAT, [f"{processing.image_token} What is it?"], truncation=True, max_length=8)


def a_mark_in_the_text(policy, mark, **_):
    messages = [{"role": "user", "content": f"What does {mark} mean?"}]
    policy.processing_class.apply_chat_template(messages, tokenize=False)


def more_marks_than_images(encode, mark, **_):
    encode([f"{mark}{mark} Compare."], [[CAT]])


def images_of_other_rows(encode, mark, **_):
    encode([f"{mark} What is it?"], [[CAT], [CAT]])


def a_path_that_is_gone(encode, mark, **_):
    encode([f"{mark} What is it?"], [["gone.jpg"]])


def a_page_for_an_image(encode, mark, **_):
    encode([f"{mark} What is it?"], [[b"<html>not found</html>"]])


def a_video_without_a_place(policy, **_):
    policy.processing_class(text="What happens?", videos=[[CAT]])


def another_store(encode, mark, checkpoint, tmp_path, **_):
    other = AutoVLMPolicy.from_pretrained(checkpoint("qwen2_5_vl"), image_store=ImageStore(tmp_path))
    other(**encode([f"{mark} What is it?"], CAT, return_tensors="pt"))


def no_such_column(**_):
    iou_reward(completions=["[0, 0, 1, 1]"], answer=["cat"])


def a_column_of_something_else(**_):
    exact_match_reward(completions=["cat"], answer=[{"name": "cat"}])


def boxes_of_a_family_without(policy_for, **_):
    BoxCoordinates.of(policy_for("gemma3").processing_class)


def a_box_with_a_width(policy, **_):
    BoxCoordinates.relative(1000).to_text([600, 400, 100, 50], (640, 480))


MISTAKES = {
    no_family: "has model_type ..., of which transformers ... has no image-text-to-text model",
    an_option_of_another_family: "Got ... for a ... model. It takes",
    an_untrained_adapter: "changes nothing: with it, the model is its base",
    an_adapter_whose_base_is_gone: "was trained on ..., a directory that is not here",
    ids_without_their_images: (
        "There are image placeholders from position ... on, but no image came with them"
    ),
    a_length_limit: "truncation to ... tokens cut an image",
    a_mark_in_the_text: "the text contains ..., this model's placeholder for an image",
    more_marks_than_images: "image placeholders (...) but ... images",
    images_of_other_rows: "Got images for ... rows but text for",
    a_path_that_is_gone: "Cannot read the image file",
    a_page_for_an_image: "not an image that PIL can read",
    a_video_without_a_place: "video placeholders (...) but ... videos",
    another_store: "No image for ticket",
    no_such_column: "reads the column ..., which is missing",
    a_column_of_something_else: "of the column ... is ... Expected",
    boxes_of_a_family_without: "documents no boxes. Choose how its models shall write them",
    a_box_with_a_width: "Expected [x1, y1, x2, y2] inside the image",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_ends_with_the_quoted_message(
    mistake, policy, policy_for, encode, mark, checkpoint, tmp_path
):
    assert MISTAKES[mistake] in OWN
    with pytest.raises(Exception, match=pattern(MISTAKES[mistake])):
        mistake(
            policy=policy,
            policy_for=policy_for,
            encode=encode,
            mark=mark,
            checkpoint=checkpoint,
            tmp_path=tmp_path,
        )
