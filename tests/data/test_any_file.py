"""Rows of whatever a path holds are the same rows, whatever file they lie in."""

import csv
import io
import json
import os
import tarfile

import pytest
from datasets import Dataset, DatasetDict, Image, List

from hf_vlm_rl.data import load_any, load_llava, load_messages
from hf_vlm_rl.errors import DataError
from hf_vlm_rl.rewards import IoUReward
from tests.data.files import IMAGE, jsonl, listed, llava, pixels, user

ANSWERS = {"text": ["cat", "cup"], "number": [3, 4], "float": [0.5, 4.0], "box": [[1, 2, 3, 4], [0, 0, 9, 9]]}


def questions(answers):
    names = ("cat.png", "coffee.png")
    return [
        {"question": "What?", "image": name, "answer": answer}
        for name, answer in zip(names, answers, strict=True)
    ]


def add(archive, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def written(form, rows, folder, photos):
    """The rows of questions in a file or folder of this form."""
    path = folder / f"rows.{form}"
    if form == "jsonl":
        return jsonl(path, rows)
    if form == "json":
        said = [llava(row["question"], row["answer"], image=row["image"]) for row in rows]
        return listed(path, said)
    if form == "problem.jsonl":
        names = {"question": "problem", "answer": "solution"}
        return jsonl(path, [{names.get(name, name): value for name, value in row.items()} for row in rows])
    if form == "csv":
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        return path
    if form == "yaml":
        jsonl(folder / "entry.jsonl", rows)
        path.write_text("datasets: [{json_path: entry.jsonl}]")
        return path
    if form == "tar":
        with tarfile.open(path, "w") as archive:
            for number, row in enumerate(rows):
                add(archive, f"{number:04}.png", (photos / row["image"]).read_bytes())
                fields = {name: value for name, value in row.items() if name != "image"}
                add(archive, f"{number:04}.json", json.dumps(fields).encode())
        return path
    if form == "folder":
        folder = folder / "folder"
        folder.mkdir()
        for row in rows:
            os.link(photos / row["image"], folder / row["image"])
        named = [{("file_name" if name == "image" else name): row[name] for name in row} for row in rows]
        jsonl(folder / "metadata.jsonl", named)
        return folder
    table = Dataset.from_list([row | {"image": str(photos / row["image"])} for row in rows])
    table = table.cast_column("image", Image())
    if form == "parquet":
        table.to_parquet(path)
    else:
        DatasetDict(train=table, test=table).save_to_disk(path)
    return path


FORMS = ["jsonl", "json", "problem.jsonl", "csv", "yaml", "tar", "folder", "parquet", "saved"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
def test_every_form_gives_the_same_rows(form, answers, photos, tmp_path):
    if form == "csv" and isinstance(answers[0], list):
        answers = [str(answer) for answer in answers]  # a cell has no lists
    path = written(form, questions(answers), tmp_path, photos)
    folder = None if form == "folder" else photos
    rows = load_any(str(path), image_folder=folder)
    assert rows.features["images"] == List(Image())
    expected = [
        {"prompt": [user(IMAGE, "What?")], "answer": answer, "size": (24 + 8 * number, 32)}
        for number, answer in enumerate(answers)
    ]
    got = [{"prompt": row["prompt"], "answer": row["answer"], "size": row["images"][0].size} for row in rows]
    assert got == expected
    assert [type(row["answer"]) for row in rows] == [type(answer) for answer in answers]
    if form in ("jsonl", "tar", "parquet", "csv"):
        assert list(map(pixels, load_messages(path, photos))) == list(map(pixels, rows))
    if form in ("json", "problem.jsonl"):
        assert list(map(pixels, load_llava(path, photos))) == list(map(pixels, rows))


def test_boxes_of_vlm_r1_feed_the_reward(photos, tmp_path):
    boxes = ANSWERS["box"]
    path = written("json", questions(boxes), tmp_path, photos)
    rows = load_any(path, image_folder=photos, answer="solution")
    assert IoUReward(column="solution")(completions=["[1, 2, 3, 4]"] * 2, solution=rows["solution"][:]) == [
        1.0,
        pytest.approx(4 / 81),
    ]


def test_answers_of_two_types_are_told_and_can_be_text(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", [llava("A?", [1, 2, 3, 4]), llava("B?", "B")])
    with pytest.raises(DataError, match=r"line 2: column 'answer' holds .*line 1; .*strings=\['answer'\]"):
        load_any(path)
    assert load_any(path, strings=["answer"])["answer"][:] == ["[1, 2, 3, 4]", "B"]
    path = jsonl(tmp_path / "none.jsonl", [llava("A?")])
    assert load_any(path)[0]["answer"] is None
    assert load_any(path).features["answer"].dtype == "string"


def test_a_folder_for_each_class_needs_a_question(photos, tmp_path):
    (tmp_path / "classes" / "cats").mkdir(parents=True)
    os.link(photos / "cat.png", tmp_path / "classes" / "cats" / "1.png")
    assert load_any(tmp_path / "classes", question="What?")["answer"][:] == ["cats"]
    with pytest.raises(DataError, match=r"question="):
        load_any(tmp_path / "classes")


def test_shards_of_a_folder_follow_each_other(photos, tmp_path):
    for name in ("1.tar", "2.tar"):
        with tarfile.open(tmp_path / name, "w") as archive:
            add(archive, "a/0.cat.png", (photos / "cat.png").read_bytes())
            add(archive, "a/0.coffee.png", (photos / "coffee.png").read_bytes())
            fields = {"problem": "<image><image>", "images": ["0.coffee.png", "0.cat.png"]}
            add(archive, "a/0.json", json.dumps(fields).encode())
            add(archive, "a/0.shard.txt", name.encode())
    rows = load_any(tmp_path)
    assert [(row["shard"], [image.width for image in row["images"]]) for row in rows] == [
        ("1.tar", [32, 24]),
        ("2.tar", [32, 24]),
    ]


def link(archive):
    member = tarfile.TarInfo("1.png")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive.addfile(member)


FAULTS = {
    "is a link": link,
    "'1.mp3' is neither": lambda archive: add(archive, "1.mp3", b"x"),
    "is not JSON": lambda archive: add(archive, "1.json", b"{"),
    "names the images": lambda archive: (
        add(archive, "1.png", b"x"),
        add(archive, "1.json", b'{"prompt": "A?", "image": "../2.png"}'),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_samples_of_archives_are_read_with_care(fault, photos, tmp_path):
    path = written("tar", questions(ANSWERS["number"]), tmp_path, photos)
    with tarfile.open(path, "a") as archive:
        FAULTS[fault](archive)
    with pytest.raises(DataError, match=rf"rows\.tar, sample '1': .*{fault}"):
        load_any(path)
    assert len(load_any(path, on_error="skip")) == 2


def test_archives_that_are_cut_off_or_compressed_are_refused(photos, tmp_path):
    path = written("tar", questions(ANSWERS["number"]), tmp_path, photos)
    data = path.read_bytes()
    path.write_bytes(data[:700])
    with pytest.raises(DataError, match=r"rows\.tar cannot be read as a tar archive"):
        load_any(path)
    path.write_bytes(b"\x1f\x8b" + data)
    with pytest.raises(DataError, match="Expected an uncompressed one"):
        load_any(path)


@pytest.mark.parametrize("loader", [load_any, load_messages, load_llava])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv", "tar"])
def test_a_file_that_is_not_there_is_told_alike(loader, suffix, tmp_path):
    with pytest.raises(DataError, match=r"Cannot read .*nowhere.*No such file.*\.parquet, \.csv or \.tar"):
        loader(tmp_path / f"nowhere.{suffix}")


@pytest.mark.parametrize("source", ["photos", "./photos", "/no/where", "a/b/c", "{}/photos"])
def test_a_mistyped_folder_does_not_ask_the_hub(source, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="There is no file and no folder"):
        load_any(source.format("data"))


def test_an_unknown_split_is_told(photos, tmp_path):
    path = written("saved", questions(ANSWERS["number"]), tmp_path, photos)
    with pytest.raises(DataError, match=r"no split 'tset'. Expected one of \['test', 'train'\]"):
        load_any(path, split="tset")


def test_a_csv_keeps_what_is_written(tmp_path):
    (tmp_path / "rows.csv").write_text(
        "question,answer,number,share,mixed,flag\nA?,007,3,0.5,3,True\nB?,NA,,1.5,2.5,False\nC?,1.50,-4,2.0,,True\n"
    )
    rows = load_any(tmp_path / "rows.csv", strings=["number"])
    assert rows["answer"][:] == ["007", "NA", "1.50"]
    assert rows["number"][:] == ["3", None, "-4"]
    assert rows["share"][:] == [0.5, 1.5, 2.0]
    assert rows["mixed"][:] == [3.0, 2.5, None]
    assert rows["flag"][:] == [True, False, True]


def test_a_tar_whose_texts_or_names_are_no_unicode_is_named_and_skipped(tmp_path):
    turns = json.dumps([{"from": "human", "value": "A?"}, {"from": "gpt", "value": "x"}])
    with tarfile.open(tmp_path / "rows.tar", "w") as archive:
        for name, text in (
            ("good.json", turns),
            ("bad.json", turns.replace("A?", "\\ud83d")),
            ("\udcff.json", turns),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    with pytest.raises(DataError, match=r"sample 'bad'.*surrogate"):
        load_any(tmp_path / "rows.tar")
    assert load_any(tmp_path / "rows.tar", on_error="skip")["answer"][:] == ["x"]
