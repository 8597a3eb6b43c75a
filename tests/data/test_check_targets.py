"""`check_data` writes where it is told to, and never over what it reads."""

import json
import os

import pytest

from hf_vlm_rl.cli import commands as cli
from hf_vlm_rl.data import check_data, load_any
from hf_vlm_rl.errors import DataError
from tests.data.files import jsonl, listed

ROWS = [{"prompt": "A?"}, {"prompt": "B?", "chosen": 1}]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with sources by several names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name in ("src.jsonl", "old.jsonl.part", "rows.html", "photos/metadata.jsonl"):
        jsonl(tmp_path / name, ROWS)
    (tmp_path / "mix.yaml").write_text("datasets: [{json_path: src.jsonl}]")
    os.symlink("src.jsonl", "link.jsonl")
    os.link("src.jsonl", "hard.jsonl")
    os.symlink("src.jsonl", "rows.yaml.html")
    return tmp_path


OVER = {
    "itself": ("src.jsonl", "write", "src.jsonl"),
    "itself, another way": ("src.jsonl", "write", "photos/../src.jsonl"),
    "where a link leads": ("link.jsonl", "write", "src.jsonl"),
    "a link to it": ("src.jsonl", "write", "link.jsonl"),
    "another name of it": ("src.jsonl", "write", "hard.jsonl"),
    "a file of a mixture": ("mix.yaml", "write", "src.jsonl"),
    "a file of a folder": ("photos", "write", "photos/metadata.jsonl"),
    "the file before it is renamed": ("old.jsonl.part", "write", "old.jsonl"),
    "a page with the suffix of rows": ("src.jsonl", "page", "src.jsonl"),
    "a page of another suffix": ("src.jsonl", "page", "page.txt"),
    "a page over rows": ("rows.html", "page", "rows.html"),
    "a page over a link to rows": ("mix.yaml", "page", "rows.yaml.html"),
    "no folder": ("src.jsonl", "page", "nodir/page.html"),
    "no folder for rows": ("src.jsonl", "write", "nodir/rows.jsonl"),
}


@pytest.mark.parametrize(("source", "argument", "target"), OVER.values(), ids=OVER)
def test_nothing_is_written_over_what_is_read_or_nowhere(
    source, argument, target, folder, capsys, monkeypatch
):
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    monkeypatch.setattr("hf_vlm_rl.data.check._Check.rows", lambda check: pytest.fail("the pass began"))
    options = {"question": "What?"} if source == "photos" and argument == "page" else {}
    with pytest.raises(ValueError, match=f"Got {argument}='{target}'.* Expected"):
        check_data(source, **{argument: target}, **options)
    assert cli.main(["data", "check", source, f"--{argument}", target]) == 1
    assert f"Got --{argument} {target}" in capsys.readouterr().err
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before


def test_an_error_leaves_the_earlier_file_and_no_part(folder, monkeypatch):
    (folder / "clean.jsonl").write_text("earlier")
    check_data("src.jsonl", write="clean.jsonl", page="page.html")
    assert (folder / "clean.jsonl").read_text() != "earlier"
    (folder / "page.html").write_text("earlier")
    monkeypatch.setattr("hf_vlm_rl.data.check._line", lambda record, row: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        check_data("src.jsonl", write="clean.jsonl", page="page.html")
    assert (folder / "page.html").read_text() == "earlier"
    assert [path.name for path in folder.glob("*.part")] == ["old.jsonl.part"]


def test_a_list_that_breaks_off_is_a_finding(tmp_path):
    path = listed(tmp_path / "rows.json", ROWS)
    path.write_text(path.read_text()[:-10])
    report = check_data(path, write=tmp_path / "clean.jsonl")
    assert (report.rows, report.clean) == (2, 1)
    assert str(report.findings[0]).startswith(f"row: {path}, index 1: not a JSON list (")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["clean.jsonl", "rows.json"]


@pytest.mark.parametrize(("text", "broken"), [('[{"prompt": "A?",}, {"prompt": "B?"}]', 0), ("[1, {", 1)])
def test_a_list_that_breaks_before_any_row_is_a_finding_too(text, broken, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(text)
    jsonl(tmp_path / "good.jsonl", [{"prompt": "A?"}])
    entries = [{"json_path": name} for name in ("rows.json", "good.jsonl")]
    (tmp_path / "both.yaml").write_text(json.dumps({"datasets": entries}))
    for source, clean in ((path, 0), (tmp_path / "both.yaml", 1)):
        report = check_data(source)
        assert [each.place for each in report.findings] == [f"{path}, index {i}" for i in range(broken + 1)]
        assert report.findings[-1].reason.startswith("not a JSON list (Expecting property name")
        assert (report.rows, report.clean) == (broken + 1 + clean, clean)
        with pytest.raises(DataError, match=rf"rows\.json, index {broken}: not a JSON list"):
            load_any(source, on_error="skip")
