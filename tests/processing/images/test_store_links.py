"""Links and foreign files in a store's directory: no user's file is removed, changed or written."""

import contextlib
import os
import stat
import time

import PIL.Image
import pytest

from hf_vlm_rl import ImageStore
from hf_vlm_rl.cli import main
from hf_vlm_rl.processing.images.disk import MARKER
from tests.processing.images.noise import noise, same


def old(path, days=400):
    os.utime(path, (time.time() - days * 86_400,) * 2)


@pytest.fixture
def thesis(tmp_path):
    """A user's folder with files, some under names like the store's own, all of them old."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    for name in ("thesis.tex", "zz0123456789abcd.png", "ab0123456789abcd.png", ".abcdefgh.tmp"):
        (folder / name).write_text("years of work")
        old(folder / name)
    folder.chmod(0o700)
    return folder


@pytest.fixture
def store(tmp_path):
    """A store that spills everything at once, in a directory that everybody may write to."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images").chmod(0o1777)
    return ImageStore(tmp_path / "images", memory_bytes=1, spill_bytes=1)


def state(folder):
    return {
        path: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()
    }, stat.S_IMODE(folder.stat().st_mode)


@pytest.mark.parametrize("place", ["spilled", "kept", "spilled/zz", "kept/zz", "spilled/ab", "kept/ab"])
@pytest.mark.parametrize("inside", [False, True], ids=["thesis", "above"])
def test_neither_clean_nor_the_sweep_follows_a_link(store, thesis, place, inside):
    before = state(thesis)
    link = store.directory / place
    link.parent.mkdir(exist_ok=True)
    if inside:  # kept -> a folder that holds ab -> thesis
        (thesis.parent / "above").mkdir()
        (thesis.parent / "above" / "ab").symlink_to(thesis)
    link.symlink_to(thesis.parent / "above" if inside else thesis)
    for seed in range(64):
        with contextlib.suppress(OSError):  # `test_what_a_link_stands_in_the_way_of_is_named`
            store.put(noise(seed))
    store.clean(older_than_days=1)
    assert state(thesis) == before


@pytest.mark.parametrize("place", ["kept", "kept/81"])
def test_what_a_link_stands_in_the_way_of_is_named(store, thesis, place):
    image = PIL.Image.frombytes(
        "RGB", (3, 1), bytes.fromhex("e6a97f63de1fea2d00")
    )  # its ticket begins with 81
    link = store.directory / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(thesis)
    with pytest.raises(OSError, match=rf"{place} is a link, and a store follows none"):
        store.put(image, keep=True)


def test_a_link_to_a_file_is_not_removed_and_what_it_names_neither(store, thesis):
    folder = store.directory / "kept" / "ab"
    folder.mkdir(parents=True)
    link = folder / "ab0123456789abcd.png"
    link.symlink_to(thesis / "thesis.tex")
    os.utime(link, (0, 0), follow_symlinks=False)
    before = state(thesis)
    assert store.clean(older_than_days=1).files == 0
    assert link.is_symlink()
    assert state(thesis) == before


def test_a_link_in_the_place_of_an_image_is_replaced(tmp_path, thesis):
    directory = tmp_path / "other"
    ticket = ImageStore(directory).put(noise(0), keep=True)
    (path,) = directory.glob("kept/*/*.png")
    path.unlink()
    path.symlink_to(thesis / "thesis.tex")
    before = state(thesis)
    ImageStore(directory).put(noise(0), keep=True)
    assert not path.is_symlink()
    assert state(thesis) == before
    assert same(ImageStore(directory).get(ticket).image, noise(0))


def test_only_names_of_the_store_s_own_are_removed(store):
    store.put(noise(0), keep=True)
    (image,) = store.directory.glob("kept/*/*.png")
    mine = image.parent / f".{'x' * 8}.tmp"  # left by a process that was stopped
    others = [image.parent / "notes.txt", image.parent.parent / "ab.txt", store.directory / "old.png"]
    others.append(image.parent.parent / "backup" / image.name)
    others[-1].parent.mkdir()
    for path in (mine, *others):
        path.write_text("years of work")
    for path in (image, mine, *others):
        old(path)
    assert store.clean(older_than_days=1).files == 2
    assert not image.exists()
    assert not mine.exists()
    assert all(path.exists() for path in others)


def test_the_command_refuses_a_folder_that_is_no_store(tmp_path, capsys):
    file = tmp_path / "kept" / "ab" / "ab0123456789abcd.png"
    file.parent.mkdir(parents=True)
    file.write_text("years of work")
    old(file)
    assert main(["clean", "--older-than", "1", "--directory", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"has no file {MARKER}. Expected the directory of an ImageStore. Nothing was removed" in said
    assert file.exists()
    ImageStore(tmp_path)  # as the message says of stores of earlier versions
    assert main(["clean", "--older-than", "1", "--directory", str(tmp_path)]) == 0
    assert not file.exists()


@pytest.mark.parametrize("kind", ["a pipe", "a link"])
def test_what_is_no_file_under_an_image_s_name_is_replaced_unread(tmp_path, kind):
    here, there = ImageStore(tmp_path / "images"), ImageStore(tmp_path / "more")
    picture = noise(1)
    here.put(picture, keep=True)
    (written,) = (tmp_path / "images" / "kept").rglob("*.png")
    path = there.directory / written.relative_to(here.directory)
    path.parent.mkdir(parents=True)
    if kind == "a pipe":
        os.mkfifo(path)  # whose reading would wait for a writer
    else:
        path.symlink_to(written)
        old(written)
    before = written.stat()
    there.put(picture, keep=True)
    assert path.is_file()
    assert not path.is_symlink()
    assert path.read_bytes() == written.read_bytes()
    assert written.stat().st_mtime_ns == before.st_mtime_ns


def test_a_marker_that_is_a_link_marks_nothing_and_is_not_written_through(tmp_path, thesis):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / MARKER).symlink_to(thesis / "new")
    ImageStore(tmp_path / "images")
    assert not (thesis / "new").exists()
