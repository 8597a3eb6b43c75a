"""Rows of whatever file the command line is given, with images found from the file's folder on."""

import pytest

from hf_vlm_rl.data.any_file import read_dataset
from hf_vlm_rl.errors import DataError
from tests.data.files import NAMES, jsonl


def test_paths_begin_at_the_file_and_other_forms_stay(tmp_path):
    url, data = "https://host/cat.png", "data:image/png;base64,AAAA"
    images = ["cat.png", "/photos/cat.png", "file:///photos/cat.png", url, data, None]
    path = jsonl(tmp_path / "rows.jsonl", [{"prompt": "A?", "image": image, "n": 1} for image in images])
    rows = list(read_dataset(str(path), "train", None))
    here = str(tmp_path / "cat.png")
    assert [row["image"] for row in rows] == [here, "/photos/cat.png", "/photos/cat.png", url, data, None]
    assert list(rows[0]) == ["prompt", "image", "n"]
    path = jsonl(tmp_path / "several.jsonl", [{"prompt": "A?", "images": list(NAMES)}] * 3)
    rows = read_dataset(str(path), "train", 2)
    assert [row["images"] for row in rows] == [[str(tmp_path / name) for name in NAMES]] * 2


def test_paths_that_lead_out_of_the_folder_are_refused(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", [{"prompt": "A?", "image": name} for name in ("a.png", "../b.png")])
    with pytest.raises(DataError, match=r"^Row 1: the image '\.\./b\.png' leads out of"):
        list(read_dataset(str(path), "train", None))
