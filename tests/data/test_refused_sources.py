"""What is no file of rows is told by what it is, and how to name what was meant."""

import os

import pytest
from datasets import Dataset

from hf_vlm_rl.data import check_data, load_any, load_llava
from hf_vlm_rl.errors import DataError
from tests.data.files import jsonl
from tests.data.test_any_file import questions, written
from tests.images import photo

ROWS = questions([1, 2])


@pytest.fixture
def folder(tmp_path, monkeypatch, photos):
    """The working directory, with rows, an archive, an image and files that are something else."""
    monkeypatch.chdir(tmp_path)
    written("tar", ROWS, tmp_path, photos)
    for name in ("shards", "class/cat"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("shards/1.tar", "shards/2.tar"):
        os.link("rows.tar", name)
    jsonl(tmp_path / "good.jsonl", [{"prompt": "A?"}])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing more")
    photo("cat", (8, 8)).save("a.png")
    photo("cat", (8, 8)).save("a.jpg")
    photo("cat", (8, 8)).save("class/cat/1.png")
    return tmp_path


REFUSED = {
    "nothing": ("", r"Got ''\. Expected a file of rows"),
    "an address": ("s3://b/x.jsonl", r"Got 's3://b/x\.jsonl'.* Addresses and patterns of names are not read"),
    "a pattern": ("*.jsonl", r"Got '\*\.jsonl'.* a mixture \(\.yaml\) lists files"),
    "a pattern in a folder": ("shards/part-[0-9]", "patterns of names are not read"),
    "a mistyped name": ("goood.jsonl", r"No such file or directory\. Did you mean '.*/good\.jsonl'\?"),
    "a PNG": ("a.png", r"a\.png is an image\. Expected a JSON Lines file"),
    "a JPEG": ("a.jpg", r"a\.jpg is an image\. Expected a JSON Lines file"),
    "no parquet": ("bad.parquet", r"/bad\.parquet cannot be read as parquet: Parquet magic bytes"),
    "archives beside rows": (
        ".",
        r"\. holds archives \(\.tar\), and \['good\.jsonl', 'bad\.parquet'\] beside",
    ),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.values(), ids=REFUSED)
def test_a_source_that_is_none_is_told(source, message, folder):
    for read in (load_any, check_data):
        with pytest.raises(DataError, match=message):
            read(source)


def test_a_table_that_describes_its_shard_may_lie_beside_it(folder):
    Dataset.from_list([{"key": 1}]).to_parquet("shards/1.parquet")
    (folder / "shards" / "1_stats.json").write_text("{}")
    assert len(load_any("shards")) == 4


@pytest.mark.parametrize("source", ["good.jsonl", "shards", "class"])
def test_a_split_of_what_has_none_is_refused(source, folder):
    question = "What?" if source == "class" else None
    with pytest.raises(DataError, match=f"{source} has no splits, and split='test' was asked for"):
        load_any(source, split="test", question=question)
    assert len(load_any(source, split=None, question=question)) == len(load_any(source, question=question))


@pytest.mark.parametrize("split", ["train", "test", "train[:1]"])
def test_a_folder_of_images_needs_a_question_whatever_the_split(split, folder):
    with pytest.raises(DataError, match=r"class holds images without questions\. Expected question='\.\.\.'"):
        load_any("class", split=split)


def test_a_folder_has_its_splits_and_slices_of_them(folder):
    jsonl(folder / "class" / "metadata.jsonl", [{"file_name": "cat/1.png", "prompt": "A?"}])
    assert [len(load_any("class", split=split)) for split in ("train", "train[:1]")] == [1, 1]
    with pytest.raises(DataError, match='class cannot be read: Unknown split "test"'):
        load_any("class", split=None)


@pytest.mark.parametrize("loader", [load_any, load_llava])
def test_an_unknown_keyword_is_told_with_those_that_are_known(loader, folder):
    with pytest.raises(
        TypeError, match="argument 'imagefolder'; loaders take some of image_folder, "
    ) as told:
        loader("good.jsonl", imagefolder="photos")
    assert "__init__" not in str(told.value)
