"""LLaVA's and VLM-R1's rows become prompts with the images in place."""

import base64
import json
import re

import pytest
from datasets import Image, List, Value

from hf_vlm_rl.data import load_llava
from hf_vlm_rl.errors import DataError, ImageError
from tests.data.files import IMAGE, NAMES, jsonl, listed, llava, pixels, sizes, text, turn, user
from tests.images import photo


@pytest.fixture
def load(photos, tmp_path):
    """`load(rows, ...)`: what `load_llava` makes of them."""

    def load(*rows, **options):
        return load_llava(jsonl(tmp_path / "rows.jsonl", rows), photos, **options)

    return load


def test_a_row_has_the_columns_that_trainers_take(load):
    row = llava(
        "<image>\nWhere is the cat?", "[1, 2, 3, 4]", image="cat.png", bbox=[[1, 2.5]], id="a", empty=None
    )
    dataset = load(row)
    assert dataset.column_names == ["prompt", "images", "answer", "bbox", "id", "empty"]
    assert dataset.features["images"] == List(Image())
    assert dataset.features["answer"] == Value("string")
    [image] = dataset[0].pop("images")
    assert image.tobytes() == photo("cat", (24, 32)).tobytes()
    assert dataset.remove_columns("images")[0] == {
        "prompt": [user(IMAGE, "Where is the cat?")],
        "answer": "[1, 2, 3, 4]",
        "bbox": [[1.0, 2.5]],
        "id": "a",
        "empty": None,
    }


@pytest.mark.parametrize(
    ("question", "blocks"),
    [
        ("<image>\nA?", [IMAGE, text("A?")]),
        ("A?\n<image>", [text("A?"), IMAGE]),
        ("A <image> B", [text("A "), IMAGE, text(" B")]),
        ("A\r\n<image>\r\nB", [text("A"), IMAGE, text("B")]),
        ("\n\n<image>\n\nB\n", [text("\n"), IMAGE, text("\nB\n")]),
        ("<image>", [IMAGE]),
        ("no mark <image", [IMAGE, text("no mark <image")]),
        ("größer 日本語 <image>\U0001f600", [text("größer 日本語 "), IMAGE, text("\U0001f600")]),
    ],
)
def test_a_mark_becomes_a_block_in_its_place(load, question, blocks):
    assert load(llava(question, "x", image="cat.png"))[0]["prompt"] == [turn("user", *blocks)]


def test_images_follow_the_order_of_their_marks_over_all_turns(load):
    row = {
        "image": list(NAMES),
        "conversations": [
            {"from": "system", "value": "Be short."},
            {"from": "human", "value": "<image> and <image>?"},
            {"from": "gpt", "value": "First."},
            {"from": "user", "value": "Now <image>?"},
            {"from": "assistant", "value": "Last."},
        ],
    }
    dataset = load(row)
    assert dataset[0]["prompt"] == [
        turn("system", "Be short."),
        user(IMAGE, " and ", IMAGE, "?"),
        turn("assistant", "First."),
        user("Now ", IMAGE, "?"),
    ]
    assert dataset[0]["answer"] == "Last."
    assert sizes(dataset[0]) == [(24, 32), (32, 32), (40, 32)]


def test_without_marks_the_images_come_first(load):
    assert load(llava("Which?", "x", image=["cat.png", "rocket.png"]))[0]["prompt"] == [
        user(IMAGE, IMAGE, "Which?")
    ]


@pytest.mark.parametrize("fields", [{}, {"image": None}, {"image": []}, {"images": None}])
def test_rows_without_images_are_text(load, fields):
    rows = load(llava("Hello.", "Hi.", **fields), llava("<image>", "cat", image="cat.png"))
    assert rows[0]["prompt"] == [user("Hello.")]
    assert [sizes(row) for row in rows] == [[], [(24, 32)]]


def test_the_answer_can_have_another_name_or_none(load):
    row = {**llava("A?", "yes"), "answer": 3}
    assert load(row, answer="solution")[0] == {
        "prompt": [user("A?")],
        "images": [],
        "solution": "yes",
        "answer": 3,
    }
    assert load(row, answer=None)[0]["answer"] == 3
    with pytest.raises(DataError, match=r"line 1: .*field 'answer' of its own.*answer='another name'"):
        load(row)


def test_the_answer_is_none_where_nobody_answers(load):
    assert load(llava("A?"), llava("B?", "b"))["answer"] == [None, "b"]


def test_a_completion_is_the_last_answer_as_messages(load):
    row = load(llava("A?", "yes"), completion=True, answer=None)[0]
    assert row == {"prompt": [user("A?")], "images": [], "completion": [turn("assistant", "yes")]}
    with pytest.raises(DataError, match="ends with the user; expected an answer"):
        load(llava("A?"), completion=True)


def test_a_system_message_is_added_where_there_is_none(load):
    own = {"conversations": [{"from": "system", "value": "Mine."}, {"from": "human", "value": "A?"}]}
    first, second = load(llava("A?"), own, system="Think.")["prompt"]
    assert first == [turn("system", "Think."), user("A?")]
    assert second == [turn("system", "Mine."), user("A?")]


def test_another_mark_can_stand_for_images(load):
    row = load(llava("[img] <image>", "x", image="cat.png"), image_mark="[img]")[0]
    assert row["prompt"] == [user(IMAGE, " <image>")]


def test_images_are_found_by_relative_and_absolute_paths_and_urls(load, photos):
    cat = photos / "cat.png"
    data = "data:image/png;base64," + base64.b64encode(cat.read_bytes()).decode()
    given = ["cat.png", str(cat), cat.as_uri(), data, {"path": "cat.png"}, {"url": data}]
    expected = photo("cat", (24, 32)).tobytes()
    for row in load(*[llava("<image>", "x", image=each) for each in given]):
        assert [image.tobytes() for image in row["images"]] == [expected]


def test_urls_are_kept_as_they_are(load):
    dataset = load(llava("<image>", "x", image="https://host/cat.png"), check_images=False)
    stored = dataset.cast_column("images", List(Image(decode=False)))[0]["images"]
    assert stored == [{"path": "https://host/cat.png", "bytes": None}]


def test_images_are_relative_to_the_file_by_default(photos):
    path = jsonl(photos / "here.jsonl", [llava("<image>", "x", image="cat.png")])
    assert sizes(load_llava(path)[0]) == [(24, 32)]
    with pytest.raises(DataError, match="There is no folder 'nowhere'"):
        load_llava(path, "nowhere")


def test_rotated_photos_become_upright_and_keep_their_mode(load, tmp_path):
    exif = photo("cat").getexif()
    exif[0x0112] = 6
    photo("cat", (24, 40)).save(tmp_path / "rotated.jpg", exif=exif)
    photo("cat", (24, 40)).convert("P").save(tmp_path / "palette.png")
    rows = load(
        *[llava("<image>", "x", image=str(tmp_path / name)) for name in ("rotated.jpg", "palette.png")]
    )
    assert [sizes(row) for row in rows] == [[(40, 24)], [(24, 40)]]
    assert [image.mode for row in rows for image in row["images"]] == ["RGB", "P"]


def test_lists_lines_and_several_files_give_the_same_rows(photos, tmp_path):
    rows = [llava(f"<image>{i}?", str(i), image=NAMES[i % 3], id=i) for i in range(7)]
    one = load_llava(jsonl(tmp_path / "a.jsonl", rows), photos)
    two = load_llava(listed(tmp_path / "b.json", rows, indent=1), photos)
    parts = [jsonl(tmp_path / "c.jsonl", rows[:3]), listed(tmp_path / "d.json", rows[3:])]
    three = load_llava(parts, photos)
    assert [pixels(row) for row in one] == [pixels(row) for row in two] == [pixels(row) for row in three]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (llava("<image><image>", "x", image="cat.png"), "2 place(s) for images in the text"),
        (llava("<image>", "x"), "1 place(s) for images in the text ('<image>' or image blocks), but 0"),
        (llava("A?", "<image>"), "turn 1 (assistant) contains '<image>'"),
        (llava("A?", "x", image="dog.png"), "there is no image file"),
        (llava("A?", "x", image=7), "Got an image of type int. Expected a PIL image, a path"),
        (llava("A?", "x", image="data:image/png,x"), "Expected data:image/...;base64"),
        (llava("A?", "x", image="data:image/png;base64,x"), "is not valid base64"),
        (llava("A?", "x", image="cat.png", images=["cat.png"]), "both 'image' and 'images'"),
        (llava("A?", "x", video="cat.mp4"), "the row has a video"),
        ({"image": "cat.png"}, "the row has ['image']; expected 'conversations'"),
        ({"messages": []}, "load_any reads rows of 'messages', too"),
        ({"conversations": []}, "'conversations' is []; expected a list of messages"),
        ({"conversations": [{"from": "human"}]}, "conversations[0] is {'from': 'human'}"),
        ({"conversations": [{"from": "robot", "value": "A"}]}, "turn 0 is said by 'robot'"),
        ({"conversations": [{"from": ["human"], "value": "A"}]}, "turn 0 is said by ['human']"),
        ({"conversations": [{"from": "gpt", "value": "A"}]}, "no turn of a user"),
        (llava("A?", "x", prompt="B"), "a field 'prompt' of its own"),
        ({"conversations": [{"from": "human", "value": 3}]}, "turn 0 has the content 3"),
        ([1], "the row is [1]; expected a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_a_bad_row_names_file_and_line(load, tmp_path, row, message):
    good = llava("<image>", "x", image="cat.png")
    with pytest.raises(DataError, match=re.escape(message)) as raised:
        load(good, "", good, row, good)
    assert str(raised.value).startswith(f"{tmp_path / 'rows.jsonl'}, line 4: ")


def test_a_bad_row_of_a_list_is_named_by_its_index(photos, tmp_path):
    path = listed(tmp_path / "rows.json", [llava("A?", "x"), llava("<image>", "x")])
    with pytest.raises(DataError, match=r"rows\.json, index 1: 1 place\(s\)"):
        load_llava(path, photos)


def test_missing_images_pass_where_they_are_not_looked_for(load):
    dataset = load(llava("<image>", "x", image="dog.png"), check_images=False)
    with pytest.raises(ImageError, match="No such file"):
        dataset[0]


def test_broken_images_are_found_where_headers_are_read(load, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    rows = [llava("<image>", "x", image=name) for name in ("cat.png", str(tmp_path / "broken.png"))]
    assert len(load(*rows)) == 2
    with pytest.raises(DataError, match=r"line 2: the image '.*broken\.png' cannot be read"):
        load(*rows, verify_images=True)
    data = "data:image/png;base64," + base64.b64encode(b"no image").decode()
    with pytest.raises(DataError, match="line 1: the image of a data: URL cannot be read"):
        load(llava("<image>", "x", image=data), verify_images=True)


def test_mixed_columns_are_kept_as_text_or_dropped_on_request(load):
    rows = [llava("A?", "x", id=7), llava("B?", "y", id="b"), llava("C?", "z", id=2**70), llava("D?", "w")]
    with pytest.raises(DataError, match=r"line 2: column 'id' holds a string beside .*line 1"):
        load(*rows)
    assert load(*rows, strings=["id"])["id"] == ["7", "b", str(2**70), None]
    assert load(*rows, drop=["id"]).column_names == ["prompt", "images", "answer"]
    with pytest.raises(ValueError, match="Expected a list of column names"):
        load(*rows, drop="id")


def test_half_a_character_is_a_bad_row(load, tmp_path):
    with pytest.raises(DataError, match="line 2: a text has one half of a surrogate pair"):
        load(llava("A?", "x"), json.dumps(llava("A?", "\ud83d")))


def test_nested_columns_come_back_as_they_were(load):
    assert load(llava("A?", "x", meta={}))["meta"] == [{}]
    metas = [{"boxes": [[1, 2], [3, 4]], "tags": ["a"]}, {"boxes": [], "tags": None}, None]
    assert load(*[llava("A?", "x", meta=meta) for meta in metas])["meta"] == metas


def test_nothing_to_load_is_an_error(tmp_path):
    with pytest.raises(DataError, match="is empty"):
        load_llava(jsonl(tmp_path / "rows.jsonl", []))
    with pytest.raises(DataError, match="has no rows"):
        load_llava(listed(tmp_path / "rows.json", []))
    with pytest.raises(ValueError, match="Got no files"):
        load_llava([])


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("<answer> [1, 2] </answer>", "[1, 2]"),
        ("<think>So.</think>\n<answer>B</answer>", "<think>So.</think>\nB"),
        (" as written ", " as written "),
        (7, 7),
        (0.5, 0.5),
        ([1, 2.5, 3, 4], [1, 2.5, 3, 4]),
    ],
)
def test_answers_lose_the_tags_as_in_vlm_r1_and_numbers_stay(load, value, answer):
    row = load({"conversations": [{"from": "human", "value": "A?"}, {"from": "gpt", "value": value}]})[0]
    assert row["answer"] == answer
    row = load({"problem": "<image>A?", "solution": value, "image": "cat.png", "id": 1}, answer="solution")[0]
    assert (row["prompt"], row["solution"], row["id"]) == ([user(IMAGE, "A?")], answer, 1)
    assert sizes(row) == [(24, 32)]


def test_a_completion_keeps_its_tags(load):
    row = load(llava("A?", "<answer>B</answer>"), completion=True)[0]
    assert (row["answer"], row["completion"]) == ("B", [turn("assistant", "<answer>B</answer>")])


def test_a_problem_needs_no_solution_and_a_question_is_no_number(load):
    assert load({"problem": "A?"})[0] == {"prompt": [user("A?")], "images": [], "answer": None}
    with pytest.raises(DataError, match="turn 0 has the content 3"):
        load({"problem": 3, "solution": 4})
    with pytest.raises(DataError, match="turn 1 has the content True"):
        load({"problem": "A?", "solution": True})


def test_the_field_system_of_llama_factory_is_the_system_message(load):
    rows = [llava("A?", "a", system="Mine."), llava("B?", "b", system=""), llava("C?", "c", system=None)]
    dataset = load(*rows, system="Think.")
    assert dataset.column_names == ["prompt", "images", "answer"]
    assert [prompt[0] for prompt in dataset["prompt"]] == [
        turn("system", "Mine."),
        turn("system", "Think."),
        turn("system", "Think."),
    ]
    assert load(*rows, drop=["system"])["prompt"][0] == [user("A?")]
    both = {
        "system": "One.",
        "conversations": [{"from": "system", "value": "Two."}, *llava("A?")["conversations"]],
    }
    for row in (both, llava("A?", system=3)):
        with pytest.raises(DataError, match=r"line 1: the row has the field 'system'.*drop=\['system'\]"):
            load(row)


@pytest.mark.parametrize("mark", ["<bbox>", "<ref-object>", "<audio>", "<video>"])
def test_marks_of_other_formats_are_named(load, mark):
    for row in (llava(f"Where is {mark}?", "There."), llava("Where?", f"At {mark}.")):
        with pytest.raises(
            DataError, match=rf"turn \d contains '{mark}', which in other formats stands for a"
        ):
            load(row)
    markup = f"Answer as {mark}[0, 0, 1, 1]{mark.replace('<', '</')}."
    assert load(llava(markup, "x"))[0]["prompt"] == [user(markup)]


OUTSIDE = ["../{}/cat.png", "a/../../{}/cat.png", {"path": "../{}/cat.png"}, "file:../{}/cat.png"]


def named(field, name):
    return {"path": field["path"].format(name)} if isinstance(field, dict) else field.format(name)


@pytest.mark.parametrize("field", OUTSIDE)
def test_relative_paths_stay_below_the_image_folder_unless_asked(load, photos, tmp_path, field):
    (tmp_path / "folder").mkdir()
    (tmp_path / photos.name).symlink_to(photos)
    row = llava("<image>", "x", image=named(field, photos.name))
    path = jsonl(tmp_path / "outside.jsonl", [row])
    with pytest.raises(DataError, match=r"line 1: the image '.*cat\.png' leads out of .*outside_images=True"):
        load_llava(path, tmp_path / "folder")
    if not str(field).startswith("a/"):  # there is no folder a
        assert sizes(load_llava(path, tmp_path / "folder", outside_images=True)[0]) == [(24, 32)]


def test_paths_that_come_back_are_below_the_folder(load, photos, tmp_path):
    (tmp_path / "..photos").symlink_to(photos)
    rows = [llava("<image>", "x", image=name) for name in ("cat.png", "./cat.png", str(photos / "cat.png"))]
    assert [sizes(row) for row in load(*rows)] == [[(24, 32)]] * 3
    path = jsonl(tmp_path / "inside.jsonl", [llava("<image>", "x", image="..photos/../..photos/cat.png")])
    assert sizes(load_llava(path)[0]) == [(24, 32)]
