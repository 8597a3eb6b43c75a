"""What all loaders share: the cache, and bad rows that are skipped."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_vlm_rl import data
from hf_vlm_rl.data import load_llava, load_messages
from hf_vlm_rl.data.passes import first_pass, second_pass
from hf_vlm_rl.errors import DataError
from tests.data.files import NAMES, jsonl, listed, llava, pixels

ROWS = [
    llava("<image>A?" if i % 3 else "B?", str(i), image=NAMES[i % 2] if i % 3 else None, i=i)
    for i in range(25)
]
BAD = [*ROWS[:3], llava("<image>", "x"), *ROWS[3:6], "{", llava("A?", "x", image="dog.png"), *ROWS[6:]]


@pytest.fixture
def path(tmp_path):
    return jsonl(tmp_path / "rows.jsonl", ROWS)


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(first_pass, "BATCH", 3)
    monkeypatch.setattr(second_pass, "BATCH", 3)


def files(dataset):
    return [entry["filename"] for entry in dataset.cache_files]


def test_unchanged_files_are_read_from_the_cache(path, photos, monkeypatch):
    first = load_llava(path, photos)
    monkeypatch.setattr(second_pass, "plan", None)  # nothing is read again
    second = load_llava(path, str(photos))
    assert files(first) == files(second)
    assert first._fingerprint == second._fingerprint
    assert second.features == first.features


@pytest.mark.parametrize(
    "options",
    [
        {"answer": "solution"},
        {"system": "S"},
        {"drop": ["i"]},
        {"strings": ["i"]},
        {"completion": True},
        {"image_mark": "[img]", "on_error": "skip"},
        {"verify_images": True},
        {"check_images": False},
    ],
)
def test_other_options_are_not_read_from_the_cache(path, photos, options):
    assert files(load_llava(path, photos)) != files(load_llava(path, photos, **options))


def test_changed_files_and_folders_are_not_read_from_the_cache(path, photos, tmp_path):
    first = load_llava(path, photos)
    other = tmp_path / "other"
    os.symlink(photos, other)
    assert files(load_llava(path, other)) != files(first)
    state = os.stat(path)
    path.write_text(path.read_text().replace('"24"', '"42"'))  # of the same size
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    changed = load_llava(path, photos)
    assert files(changed) != files(first)
    assert changed["answer"][-1] == "42"


def test_another_file_of_the_same_name_and_state_is_not_mistaken_for_it(path, photos, tmp_path):
    (tmp_path / "b").mkdir()
    twin = jsonl(tmp_path / "b" / "rows.jsonl", ROWS[::-1])
    os.utime(twin, ns=(0, os.stat(path).st_mtime_ns))
    assert load_llava(path, photos)["answer"] == load_llava(twin, photos)["answer"][::-1]


@pytest.mark.parametrize("name", ["a b [1] größe%20 * SSSSS.jsonl", "日" * 80, ".jsonl"])
def test_files_can_have_any_name(tmp_path, photos, name):
    assert load_llava(jsonl(tmp_path / name, ROWS), photos)["i"] == list(range(25))


@pytest.mark.parametrize("form", [jsonl, listed])
def test_several_batches_give_the_same_rows(photos, tmp_path, small_batches, form):
    few = load_llava(form(tmp_path / "few", ROWS), photos)
    assert few["i"] == list(range(25))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(second_pass, "BATCH", 100)
        whole = load_llava(form(tmp_path / "whole", ROWS), photos)
    assert [pixels(row) for row in few] == [pixels(row) for row in whole]


def test_loaded_rows_can_be_streamed(path, photos):
    loaded = load_llava(path, photos)
    streamed = loaded.to_iterable_dataset(num_shards=5)
    assert streamed.features == loaded.features
    assert [pixels(row) for row in streamed] == [pixels(row) for row in loaded]


def warned(caplog):
    return [record.getMessage() for record in caplog.records]


def test_skipped_rows_are_counted_and_named_once(tmp_path, photos, small_batches, caplog):
    path = jsonl(tmp_path / "rows.jsonl", BAD)
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        with caplog.at_level(logging.WARNING, "hf_vlm_rl"):
            dataset = load_llava(path, photos, on_error="skip")
        assert [row["i"] for row in dataset] == list(range(25))
        [message] = warned(caplog)
        count, *reasons = message.split("\n  ")
        assert count == "3 of 28 rows were skipped:"
        assert [reason.split(": ")[0] for reason in reasons] == [f"{path}, line {n}" for n in (4, 8, 9)]


def test_only_the_first_reasons_are_kept(tmp_path, caplog):
    path = jsonl(tmp_path / "rows.jsonl", [ROWS[0], *["{"] * 20])
    assert len(load_llava(path, on_error="skip")) == 1
    [message] = warned(caplog)
    assert message.startswith("20 of 21 rows were skipped:")
    assert message.count("not JSON") == 5
    assert message.endswith("and 15 more")


def test_a_callable_gets_every_error_also_when_the_rows_are_cached(tmp_path, photos):
    path = jsonl(tmp_path / "rows.jsonl", BAD)
    for _ in range(2):
        errors = []
        assert len(load_llava(path, photos, on_error=errors.append)) == 25
        assert [type(error) for error in errors] == [DataError] * 3
    assert load_llava(path, photos, on_error="skip")["i"] == list(range(25))


def test_a_row_whose_type_does_not_fit_can_be_skipped(tmp_path):
    rows, errors = [llava("A?", "x", n=1), llava("B?", "y", n="many"), llava("C?", "z", n=0.5)], []
    dataset = load_llava(jsonl(tmp_path / "rows.jsonl", rows), on_error=errors.append)
    assert dataset["n"] == [1.0, 0.5]
    assert "line 2: column 'n' holds" in str(errors[0])


@pytest.mark.parametrize("verify", [False, True])
def test_a_skipped_row_is_back_once_its_image_is_there(tmp_path, photos, verify):
    rows = [llava("<image>A?", "x", image="new.png"), llava("B?", "y")]
    path, options = jsonl(tmp_path / "rows.jsonl", rows), {"verify_images": verify}
    new = Path(photos) / "new.png"
    for there in (False, True, False):
        if there:
            new.write_bytes(next(Path(photos).glob("*.png")).read_bytes())
        else:
            new.unlink(missing_ok=True)
        errors = []
        dataset = load_llava(path, photos, on_error=errors.append, **options)
        assert dataset["answer"] == (["x", "y"] if there else ["y"])
        assert len(errors) == (0 if there else 1)


def test_a_file_that_was_cut_off_is_named_when_it_is_verified(tmp_path, photos):
    whole = (Path(photos) / NAMES[0]).read_bytes()
    (Path(photos) / "half.png").write_bytes(whole[: len(whole) // 2])
    path = jsonl(tmp_path / "rows.jsonl", [ROWS[0], llava("<image>A?", "x", image="half.png")])
    with pytest.raises(DataError, match=r"line 2: the image '.*half\.png' cannot be read"):
        load_llava(path, photos, verify_images=True)


def test_no_row_left_is_an_error(tmp_path):
    path = jsonl(tmp_path / "rows.jsonl", ["{", "{"])
    with pytest.raises(DataError, match=r"No row is left: all 2 were skipped\.\n.*line 1: not JSON"):
        load_llava(path, on_error="skip")


def test_a_failed_load_leaves_nothing_that_a_later_one_takes(tmp_path, photos):
    path = jsonl(tmp_path / "rows.jsonl", BAD)
    for _ in range(2):
        with pytest.raises(DataError, match="line 4"):
            load_llava(path, photos)


def test_the_package_imports_neither_datasets_nor_torch():
    script = "import sys, hf_vlm_rl.data; sys.exit(bool({'datasets', 'torch', 'yaml'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert all(hasattr(data, name) for name in data.__all__)


def test_on_error_is_one_of_three(path):
    with pytest.raises(ValueError, match="Got on_error='ignore'"):
        load_llava(path, on_error="ignore")


def test_what_a_dataset_writes_can_be_read_again(path, photos, tmp_path):
    rows = [{"messages": row["conversations"], "image": row["image"]} for row in map(json.loads, path.open())]
    again = load_messages(jsonl(tmp_path / "messages.jsonl", rows), photos)
    loaded = load_llava(path, photos, drop=["i"])
    assert [pixels(row) for row in again] == [pixels(row) for row in loaded]
