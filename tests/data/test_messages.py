"""Rows of messages: conversations, prompts, completions and preference pairs."""

import re

import pytest

from hf_vlm_rl.data import load_messages
from hf_vlm_rl.errors import DataError
from tests.data.files import IMAGE, jsonl, pixels, sizes, text, turn, user


@pytest.fixture
def load(photos, tmp_path):
    """`load(rows, ...)`: what `load_messages` makes of them."""

    def load(*rows, **options):
        return load_messages(jsonl(tmp_path / "rows.jsonl", rows), photos, **options)

    return load


def says(role, content):
    return {"role": role, "content": content}


def test_strings_and_blocks_give_the_same_rows(load, photos):
    cat = str(photos / "cat.png")
    contents = [
        "<image>What?",
        [{"type": "image"}, text("What?")],
        [{"type": "image", "image": None, "text": None}, {"type": "text", "text": "What?", "image": None}],
        ["What?"],
    ]
    inside = [
        {"type": "image", "image": "cat.png"},
        {"type": "image", "path": cat},
        {"type": "image", "url": f"file://{cat}"},
        {"type": "image_url", "image_url": {"url": f"file://{cat}"}},
        {"type": "image", "image": {"path": "cat.png", "bytes": None}},
    ]
    rows = [{"messages": [says("user", content)], "image": "cat.png"} for content in contents]
    rows += [{"messages": [says("user", [block, text("What?")])]} for block in inside]
    read = [pixels(row) for row in load(*rows)]
    assert read[0]["prompt"] == [user(IMAGE, "What?")]
    assert all(row == read[0] for row in read)


def test_a_conversation_is_cut_before_the_last_answer(load):
    said = [says("system", "S"), says("user", "A?"), says("assistant", "a"), says("user", "B?")]
    prompt = [turn("system", "S"), user("A?"), turn("assistant", "a"), user("B?")]
    row = {"messages": [*said, says("assistant", "b")], "score": 0.5}
    assert load(row)[0] == {"prompt": prompt, "images": [], "answer": "b", "score": 0.5}
    assert load(row, answer=None, completion=True, drop=["score"])[0] == {
        "prompt": prompt,
        "images": [],
        "completion": [turn("assistant", "b")],
    }
    assert load({"messages": said})[0] == {"prompt": prompt, "images": [], "answer": None}


def test_images_of_blocks_and_of_the_column_are_placed_in_order(load):
    blocks = [{"type": "image"}, {"type": "image", "path": "rocket.png"}, {"type": "image"}]
    row = load({"messages": [says("user", blocks)], "images": ["cat.png", "coffee.png"]})[0]
    assert sizes(row) == [(24, 32), (40, 32), (32, 32)]


def test_a_mark_in_a_block_of_text_is_text(load):
    row = load({"messages": [says("user", [{"type": "image"}, text("<image>?")])], "image": "cat.png"})[0]
    assert row["prompt"] == [user(IMAGE, "<image>?")]


@pytest.mark.parametrize("prompt", ["<image>Which?", [says("user", "<image>Which?")]])
def test_preference_pairs_have_messages_on_both_sides(load, prompt):
    row = {"prompt": prompt, "chosen": "A", "rejected": [says("assistant", "B")], "images": ["cat.png"]}
    found = load({**row, "margin": 2}, system="S")
    assert found.column_names == ["prompt", "images", "chosen", "rejected", "margin"]
    assert sizes(found[0]) == [(24, 32)]
    assert found.remove_columns("images")[0] == {
        "prompt": [turn("system", "S"), user(IMAGE, "Which?")],
        "chosen": [turn("assistant", "A")],
        "rejected": [turn("assistant", "B")],
        "margin": 2,
    }


def test_what_both_sides_of_a_pair_begin_with_is_the_prompt(load):
    begin = [says("user", "<image>A?"), says("assistant", "a"), says("user", "B?")]
    pair = {name: [*begin, says("assistant", name)] for name in ("chosen", "rejected")}
    row = load({**pair, "image": "cat.png"})[0]
    assert row["prompt"] == [user(IMAGE, "A?"), turn("assistant", "a"), user("B?")]
    assert [row["chosen"], row["rejected"]] == [[turn("assistant", name)] for name in ("chosen", "rejected")]


def test_prompts_and_completions_keep_their_columns(load):
    row = {"prompt": "A?", "completion": "a", "answer": 3}
    assert load(row)[0] == {
        "prompt": [user("A?")],
        "images": [],
        "completion": [turn("assistant", "a")],
        "answer": 3,
    }
    assert load({"prompt": "A?", "answer": 3})[0] == {"prompt": [user("A?")], "images": [], "answer": 3}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": []}, "'messages' is []"),
        ({"messages": [says("tool", "x")]}, "turn 0 is said by 'tool'"),
        ({"messages": [{**says("user", "x"), "name": "me"}]}, "and nothing else"),
        ({"messages": [says("user", None)]}, "turn 0 has the content None"),
        ({"messages": ["A?"]}, "messages[0] is 'A?'; expected"),
        ({"messages": [says("user", [{"type": "audio"}])]}, "turn 0 has the block {'type': 'audio'}"),
        ({"messages": [says("user", [{"type": "image"}])]}, "1 place(s) for images"),
        (
            {"messages": [says("user", [{"type": "image", "path": "cat.png"}])], "image": "cat.png"},
            "0 place(s)",
        ),
        (
            {"messages": [says("user", "A?"), says("assistant", [{"type": "image", "path": "cat.png"}])]},
            "answers have no images",
        ),
        ({"messages": [says("system", "A?")], "image": "cat.png"}, "no turn of a user to put them in"),
        (
            {"messages": [says("user", "A?"), says("assistant", "a"), says("assistant", "b")]},
            "come ['assistant', 'assistant']",
        ),
        ({"text": "x"}, "the row has ['text']; expected 'messages'"),
        ({"prompt": "A?"}, "is of the form 'prompt'"),
    ],
)
def test_a_bad_row_names_file_and_line(load, row, message):
    good = {"messages": [says("user", "<image>"), says("assistant", "x")], "image": "cat.png"}
    with pytest.raises(DataError, match=re.escape(message)) as raised:
        load(good, row)
    assert "rows.jsonl, line 2: " in str(raised.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "A?", "chosen": "a", "rejected": []}, "'rejected' is []"),
        ({"prompt": "A?", "chosen": "a", "rejected": 3}, "'rejected' is 3"),
        ({"prompt": "A?", "chosen": "a", "rejected": [says("user", "b")]}, "begins with the user"),
        ({"chosen": "a", "rejected": "b"}, "add a prompt"),
        ({"prompt": "A?", "chosen": "a"}, "expected 'messages', or 'prompt'"),
        (
            {"prompt": [says("assistant", "A")], "chosen": "a", "rejected": "b"},
            "'prompt' has no turn of a user",
        ),
    ],
)
def test_a_bad_pair_names_file_and_line(load, row, message):
    good = {"prompt": "A?", "chosen": "a", "rejected": "b"}
    with pytest.raises(DataError, match=re.escape(message)) as raised:
        load(good, row)
    assert "rows.jsonl, line 2: " in str(raised.value)


def test_the_first_row_that_tells_it_gives_the_form(load):
    good = {"prompt": "A?", "chosen": "a", "rejected": "b"}
    assert len(load("{", {"x": 1}, good, on_error="skip")) == 1
    with pytest.raises(DataError, match="line 1: not JSON"):
        load("{", {"x": 1}, on_error="skip")


def test_a_file_without_a_form_names_its_first_line_and_who_reads_it(load):
    rows = [{"conversations": [{"from": "human", "value": "A?"}], "n": n} for n in range(3)]
    with pytest.raises(DataError, match=r"line 1: .*load_any reads rows of 'conversations', too"):
        load(*rows)
    with pytest.raises(DataError, match=r"line 1: not JSON"):
        load("{", {"text": "A?"})


def test_the_field_system_of_llama_factory_is_the_system_message(load):
    talk = load({"messages": [says("user", "A?"), says("assistant", "a")], "system": "Mine."})[0]
    assert talk == {"prompt": [turn("system", "Mine."), user("A?")], "images": [], "answer": "a"}
    pair = load({"prompt": "A?", "chosen": "a", "rejected": "b", "system": "Mine."}, system="Option.")
    assert pair[0]["prompt"] == talk["prompt"]
    assert "system" not in pair.column_names


def test_marks_of_ms_swift_are_named(load):
    row = {"messages": [says("user", "<image>Where is <ref-object>?"), says("assistant", "<bbox>")]}
    row |= {"images": ["cat.png"], "objects": {"ref": ["cat"], "bbox": [[1, 2, 3, 4]]}}
    with pytest.raises(DataError, match=r"line 1: turn 0 contains '<ref-object>'.*field 'objects'"):
        load(row)
    blocks = [{"type": "image"}, text("Where is <bbox>?")]
    with pytest.raises(DataError, match="line 1: turn 0 contains '<bbox>'"):
        load({"messages": [says("user", blocks)], "images": ["cat.png"]})


def test_images_of_blocks_stay_below_the_image_folder(load):
    row = {"messages": [says("user", [{"type": "image", "path": "../cat.png"}, text("What?")])]}
    with pytest.raises(DataError, match=r"line 1: the image '\.\./cat\.png' leads out of"):
        load(row)
