"""`hf-vlm-rl data check` and `eval` take what the messages of rows advise, in flags."""

import pytest

from hf_vlm_rl.cli import commands as cli
from hf_vlm_rl.data import load_any
from tests.data.files import jsonl, llava
from tests.images import photo

REWARDS = ["--rewards", "normalized_match_reward"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: rows of which each has something else that an option mends."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    photo("cat", (16, 16)).save("cat.png")
    jsonl(tmp_path / "mixed.jsonl", [{"prompt": "A?", "id": 1}, {"prompt": "B?", "id": "b"}])
    jsonl(tmp_path / "own.jsonl", [llava("A?", "b") | {"answer": "c"}])
    jsonl(tmp_path / "rows" / "outside.jsonl", [{"prompt": "A?", "image": "../cat.png"}])
    jsonl(tmp_path / "rows" / "moved.jsonl", [{"prompt": "A?", "image": "cat.png"}])
    (tmp_path / "class" / "cat").mkdir(parents=True)
    photo("cat", (16, 16)).save("class/cat/1.png")
    return tmp_path


MENDED = {
    "two types": ("mixed.jsonl", "pass --strings id to keep all its values as text", ["--strings", "id"]),
    "two types, dropped": ("mixed.jsonl", "or --drop id", ["--drop", "id"]),
    "an answer of its own": (
        "own.jsonl",
        "pass --answer another name or --drop answer",
        ["--answer", "solution"],
    ),
    "images outside": ("rows/outside.jsonl", "--outside-images allows it", ["--outside-images"]),
    "images elsewhere": ("rows/moved.jsonl", "", ["--image-folder", "."]),
}


@pytest.mark.parametrize(("rows", "advice", "flags"), MENDED.values(), ids=MENDED)
def test_what_a_message_advises_is_an_option_of_the_command(rows, advice, flags, folder, capsys):
    assert cli.main(["data", "check", rows]) == 1
    told = capsys.readouterr().out
    assert advice in told
    assert not any(python in told for python in ("strings=", "drop=", "answer=", "folder=", "images="))
    assert cli.main(["data", "check", rows, *flags]) == 0
    capsys.readouterr()
    assert cli.main(["eval", "./gone", rows, *REWARDS]) == 1
    assert advice in (told := capsys.readouterr().err)
    assert not any(python in told for python in ("strings=", "drop=", "answer=", "folder=", "images=True"))
    assert cli.main(["eval", "./gone", rows, *REWARDS, *flags]) == 1
    assert "'./gone' is not there" in capsys.readouterr().err


def test_a_folder_of_images_is_told_to_need_a_question(folder, capsys):
    for command in (["eval", "./gone", "class", *REWARDS], ["data", "check", "class"]):
        assert cli.main(command) == 1
        assert (
            "class holds images without questions. Expected --question ..., which" in capsys.readouterr().err
        )
    assert cli.main(["eval", "./gone", "class", *REWARDS, "--question", "What?"]) == 1
    assert "'./gone' is not there" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["data", "check"], ["eval", "./gone"]])
def test_an_empty_name_and_a_split_of_a_file_are_told(command, folder, capsys):
    rewards = REWARDS if command[0] == "eval" else []
    assert cli.main([*command, "", *rewards]) == 1
    assert "Got ''. Expected a file of rows" in capsys.readouterr().err
    assert cli.main([*command, "own.jsonl", *rewards, "--split", "test"]) == 1
    assert "own.jsonl has no splits, and --split test was asked for" in capsys.readouterr().err


def test_the_paths_of_a_report_are_left_as_they_are(folder, capsys):
    jsonl(folder / "drop=['x'].jsonl", [{"prompt": "A?", "image": "split=train/a.png"}])
    assert cli.main(["data", "check", "drop=['x'].jsonl"]) == 1
    told = capsys.readouterr().out
    assert f"missing: {folder}/drop=['x'].jsonl, line 1: {folder}/split=train/a.png: there is no such" in told


def test_flags_give_what_the_options_of_loaders_give(folder, capsys):
    flags = ["--strings", "id", "--write", "clean.jsonl"]
    assert cli.main(["data", "check", "mixed.jsonl", *flags]) == 0
    assert load_any("clean.jsonl")["id"][:] == load_any("mixed.jsonl", strings=["id"])["id"][:] == ["1", "b"]
