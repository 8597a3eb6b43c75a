"""Conversations in every spelling become the one form that templates and tickets expect."""

import copy

import pytest

from hf_vlm_rl import ImageError
from hf_vlm_rl.processing.conversation import check_no_placeholder, fill_images, normalize

PAYLOADS = {
    "image": ({"image": "a.png"}, "a.png"),
    "url": ({"url": "http://host/a.png"}, "http://host/a.png"),
    "path": ({"path": "/tmp/a.png"}, "/tmp/a.png"),
    "base64": ({"base64": "QUJD"}, "data:image;base64,QUJD"),
    "base64 that is a data URL": ({"base64": "data:image/png;base64,QUJD"}, "data:image/png;base64,QUJD"),
    "image_url as OpenAI writes it": ({"image_url": {"url": "http://host/a.png"}}, "http://host/a.png"),
    "image_url as a string": ({"image_url": "http://host/a.png"}, "http://host/a.png"),
    "Arrow's None keys": ({"image": None, "text": None, "url": "a.png", "path": None}, "a.png"),
    "datasets' own dict": ({"image": {"bytes": b"x", "path": None}}, {"bytes": b"x", "path": None}),
}


def user(content) -> dict:
    return {"role": "user", "content": content}


def text(string: str) -> dict:
    return {"type": "text", "text": string}


@pytest.mark.parametrize("kind", ["image", "image_url"])
@pytest.mark.parametrize("form", PAYLOADS)
def test_every_payload_key_becomes_image(form, kind):
    block, payload = PAYLOADS[form]
    conversations, _ = normalize([user([{"type": kind, **block}])])
    assert conversations == [[user([{"type": "image", "image": payload}])]]


def test_an_image_block_without_a_payload_stays_a_placeholder():
    blocks = [{"type": "image"}, {"type": "image", "text": None, "image": None}]
    assert normalize([user(blocks)])[0] == [[user([{"type": "image"}, {"type": "image"}])]]


def test_strings_become_text_blocks_and_other_keys_of_a_message_stay():
    message = {"role": "assistant", "content": "yes", "name": "bot"}
    assert normalize([message])[0] == [[{"role": "assistant", "name": "bot", "content": [text("yes")]}]]


def test_text_blocks_lose_the_none_keys_of_arrow():
    block = {"type": "text", "text": "hi", "image": None, "url": None}
    assert normalize([user([block])])[0] == [[user([text("hi")])]]


@pytest.mark.parametrize("message", [{"role": "assistant", "content": None}, {"role": "assistant"}])
def test_a_message_without_content_stays_without(message):
    assert normalize([message])[0] == [[message]]


def test_one_conversation_and_a_batch_are_told_apart():
    conversation = [user("a"), user("b")]
    blocks = [user([text("a")]), user([text("b")])]
    assert normalize(conversation) == ([blocks], False)
    assert normalize([conversation, conversation[:1]]) == ([blocks, blocks[:1]], True)
    assert normalize(tuple(conversation)) == ([blocks], False)
    assert normalize([conversation]) == ([blocks], True)


def test_normalizing_twice_changes_nothing():
    once, _ = normalize([user([{"type": "image_url", "image_url": {"url": "a.png"}}]), user("b")])
    assert normalize(once) == (once, True)


def test_the_given_conversation_is_left_alone():
    conversation = [user([{"type": "image", "url": "a.png"}, text("hi")]), user("b"), {"role": "assistant"}]
    before = copy.deepcopy(conversation)
    normalized, _ = normalize(conversation)
    normalized[0][0]["content"][1]["text"] = "changed"
    normalized[0][0]["content"].append(text("more"))
    fill_images([user([{"type": "image"}, text("hi")])], ["b.png"])
    assert conversation == before


@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize("content", ["what is <image>?", [text("fine"), text("what is <image>?")]])
def test_a_literal_placeholder_names_the_row_the_message_and_the_role(role, content):
    conversations, _ = normalize([user("fine"), {"role": role, "content": content}])
    with pytest.raises(ImageError, match=rf"Row 3, message 1 \({role}\): the text contains '<image>'"):
        check_no_placeholder(conversations[0], ("<pad>", "<image>"), row=3)


def test_texts_without_a_placeholder_pass():
    messages = [user("an <imagine> image>"), user([{"type": "image", "image": "<image>"}]), user([])]
    conversations, _ = normalize([*messages, {"role": "assistant", "content": None}])
    check_no_placeholder(conversations[0], ("<image>",), row=0)


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_what_a_model_or_a_tool_wrote_is_a_text(role):
    messages = normalize([{"role": role, "content": "an <image> and"}])[0][0]
    check_no_placeholder(messages, ("<image>",), 0)
    assert messages[0]["content"] == [{"type": "text", "text": "an <\u2060image> and"}]


def test_images_fill_the_empty_blocks_in_order():
    conversation = [
        {"role": "system", "content": "be brief"},
        user([{"type": "image"}, text("and"), {"type": "image"}]),
        user([{"type": "image"}]),
    ]
    assert fill_images(conversation, ["a", "b", "c"]) == [
        {"role": "system", "content": [text("be brief")]},
        user([{"type": "image", "image": "a"}, text("and"), {"type": "image", "image": "b"}]),
        user([{"type": "image", "image": "c"}]),
    ]


def test_blocks_with_an_image_of_their_own_keep_it():
    filled = fill_images([user([{"type": "image", "url": "own"}, {"type": "image"}])], ["a"])
    assert filled == [user([{"type": "image", "image": "own"}, {"type": "image", "image": "a"}])]


@pytest.mark.parametrize("content", ["look", [text("look")]])
def test_without_blocks_images_go_before_the_first_user_text(content):
    conversation = [{"role": "system", "content": "be brief"}, user(content), user("again")]
    assert fill_images(conversation, ["a", "b"]) == [
        {"role": "system", "content": [text("be brief")]},
        user([{"type": "image", "image": "a"}, {"type": "image", "image": "b"}, text("look")]),
        user([text("again")]),
    ]


@pytest.mark.parametrize("message", [{"role": "user"}, user(None), user([])])
def test_an_image_alone_is_a_message(message):
    assert fill_images([message], ["a"]) == [user([{"type": "image", "image": "a"}])]


@pytest.mark.parametrize("images", [None, [], ()])
def test_no_images_change_nothing(images):
    assert fill_images([user("hi")], images) == [user([text("hi")])]


@pytest.mark.parametrize(("blocks", "images"), [(2, 1), (1, 2), (1, 0)])
def test_another_number_of_images_than_blocks_is_refused(blocks, images):
    with pytest.raises(ImageError, match=rf"has {blocks} empty image blocks but {images} images were given"):
        fill_images([user([{"type": "image"}] * blocks)], ["a"] * images)


def test_more_images_where_all_blocks_are_full_are_put_before_the_text():
    filled = fill_images([user([{"type": "image", "image": "own"}, text("hi")])], ["a"])
    assert [block.get("image") for block in filled[0]["content"]] == ["a", "own", None]


def test_images_without_a_user_message_are_refused():
    with pytest.raises(ImageError, match="Got 2 images but no user message"):
        fill_images([{"role": "system", "content": "hi"}], ["a", "b"])
