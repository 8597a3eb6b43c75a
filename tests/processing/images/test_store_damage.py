"""What goes wrong on the disk loses nothing, is said, and is mended where the pixels are at hand."""

import io
import os
import pickle
import threading
import warnings

import numpy as np
import PIL.Image
import pytest

from hf_vlm_rl import ImageStore, TicketError
from hf_vlm_rl.processing.images.disk import MARKER, name
from hf_vlm_rl.processing.images.hashes import image_ticket
from hf_vlm_rl.processing.images.notes import TextPrompts
from hf_vlm_rl.processing.images.read import load_rgb
from hf_vlm_rl.processing.images.stored import RowNote
from tests.processing.images.noise import files, noise, same

ONE = 40 * 30 * 3  # bytes of an image of noise


@pytest.fixture
def blocked(tmp_path):
    """A store of two images in memory, with a file where the directory of what is spilled should be."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "spilled").write_text("in the way")
    return ImageStore(tmp_path / "images", memory_bytes=2 * ONE)


def test_an_image_that_cannot_be_written_stays_in_memory(blocked):
    for seed in range(6):
        if seed < 2:
            blocked.put(noise(seed))
            continue
        with pytest.raises(NotADirectoryError) as caught:
            blocked.put(noise(seed))
        for part in ("Cannot use the image store: Not a directory", "$HF_VLM_RL_CACHE", "image_store="):
            assert part in str(caught.value)
        assert str(blocked.directory) in str(caught.value)
    for seed in range(6):
        assert same(blocked.get(image_ticket(noise(seed))).image, noise(seed))
    (blocked.directory / "spilled").unlink()
    blocked.put(noise(6))
    assert len(blocked) == 2
    for seed in range(7):
        assert same(blocked.get(image_ticket(noise(seed))).image, noise(seed))


def test_a_full_disk_is_named_and_loses_nothing(tmp_path, monkeypatch):
    store = ImageStore(tmp_path / "images", memory_bytes=ONE)
    real = os.fdopen

    def full(handle, mode):
        file = real(handle, mode)
        file.close()
        return open("/dev/full", mode)

    first = store.put(noise(0))
    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OSError, match=r"No space left on device.*make room with hf-vlm-rl clean"):
        store.put(noise(1))
    assert same(store.get(first).image, noise(0))
    assert files(store) == []  # nor half a file


def test_a_directory_that_cannot_be_written_to_is_named_at_once_and_only_then_needed(tmp_path):
    (tmp_path / "images").write_text("in the way")
    with pytest.warns(UserWarning, match=r"Cannot use the image store.*images.*only kept in memory"):
        store = ImageStore(tmp_path / "images")
    ticket = store.put(noise(0))
    assert same(store.get(ticket).image, noise(0))
    assert (store.source(ticket), store.row(ticket)) == (ticket, RowNote())
    with pytest.raises(OSError, match="Cannot use the image store"):
        store.put(noise(0), keep=True)


def test_workers_do_not_probe_the_directory(tmp_path):
    (tmp_path / "images").write_text("in the way")
    with pytest.warns(UserWarning, match="Cannot use"):
        store = ImageStore(tmp_path / "images")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(pickle.dumps(store))


def test_a_probe_leaves_nothing_behind_but_the_marker_of_a_store(store):
    assert [path.name for path in store.directory.iterdir()] == [MARKER]


def test_threads_lose_no_image_while_others_are_written(tmp_path):
    store = ImageStore(tmp_path / "images", memory_bytes=ONE)
    tickets = [store.put(noise(seed)) for seed in range(12)]
    lost = []

    def use(first: int) -> None:
        for turn in range(36):
            seed = (first + 5 * turn) % 12
            try:
                if not same(store.get(tickets[seed]).image, noise(seed)):
                    lost.append(seed)
                store.put(noise(100 + first * 36 + turn))
                store.get(image_ticket(noise(100 + first * 36 + turn)))
            except TicketError:
                lost.append(seed)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert lost == []


DAMAGES = [
    pytest.param(lambda data: b"", id="empty"),
    pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
    pytest.param(lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:], id="one bit flipped"),
]


def damage(store: ImageStore, file: str, change) -> None:
    (path,) = store.directory.rglob(file)
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("change", DAMAGES)
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "spilled"])
def test_a_damaged_image_file_is_mended_by_whoever_has_the_pixels(tmp_path, change, keep):
    store = ImageStore(tmp_path / "images", memory_bytes=1)
    ticket = store.put(noise(0), keep=keep)
    store.put(noise(1), keep=keep)
    damage(store, name(ticket) + ".png", change)
    another = ImageStore(store.directory, memory_bytes=1)
    another.put(noise(0), keep=keep)
    another.put(noise(2), keep=keep)
    assert same(ImageStore(store.directory).get(ticket).image, noise(0))
    assert files(store).count(name(ticket) + ".png") == 1


def test_a_damaged_file_that_was_whole_before_is_mended_once_it_was_noticed(tmp_path):
    store = ImageStore(tmp_path / "images", memory_bytes=1)
    ticket = store.put(noise(0), keep=True)
    store.put(noise(1))
    damage(store, name(ticket) + ".png", lambda data: data[:50])
    with pytest.raises(TicketError, match="Encode the row again"):
        store.get(ticket)
    store.put(noise(0), keep=True)
    assert same(ImageStore(store.directory).get(ticket).image, noise(0))


@pytest.mark.parametrize("change", DAMAGES)
def test_a_damaged_note_is_mended(store, change):
    columns = {"answer": "cat " * 80}
    ticket = store.put(noise(0), columns=columns, keep=True)
    damage(store, name(ticket) + ".json", change)
    with pytest.raises(TicketError, match="does not hold what"):
        ImageStore(store.directory).get(ticket)
    ImageStore(store.directory).put(noise(0), columns=columns, keep=True)
    assert ImageStore(store.directory).get(ticket).columns == columns


@pytest.mark.parametrize("change", DAMAGES)
def test_a_damaged_note_of_a_text_prompt_is_mended(store, change):
    note = RowNote({"answer": "four " * 80})
    key = store.text_prompts.keep(7, [1, 2, 3], note)
    damage(store, "*.prompt.json", change)
    with pytest.raises(TicketError, match="does not hold what"):
        TextPrompts(store.files).remember(7, [1, 2, 3], key)
    assert TextPrompts(store.files).keep(7, [1, 2, 3], note) == key
    assert TextPrompts(store.files).remember(7, [1, 2, 3], key)


def test_what_is_kept_reaches_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("sync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (order.append("name"), replace(*paths)))
    store = ImageStore(tmp_path / "images", memory_bytes=1)
    store.put(noise(0), columns={"answer": 1}, keep=True)
    assert order == ["sync", "name"] * 2
    order.clear()
    store.put(noise(1))
    store.put(noise(2))
    assert order == ["name"]


def with_profile() -> bytes:
    """A JPEG with a colour profile larger than PIL reads from a PNG."""
    file = io.BytesIO()
    noise(0).save(file, "JPEG", icc_profile=np.random.default_rng(0).bytes(1_200_000))
    return file.getvalue()


def with_transparency(mode: str, transparency) -> bytes:
    file = io.BytesIO()
    PIL.Image.effect_noise((40, 30), 90).convert(mode).save(file, "PNG", transparency=transparency)
    return file.getvalue()


FILES = {
    "a colour profile above 1 MB": with_profile(),
    "1 bit with transparency": with_transparency("1", 0),
    "grey with transparency": with_transparency("L", 3),
    "a palette with transparency": with_transparency("P", 3),
    "colours with transparency": with_transparency("RGB", (1, 2, 3)),
}


@pytest.mark.parametrize("file", FILES)
def test_what_a_file_says_besides_its_pixels_does_not_reach_the_store(store, file):
    image = load_rgb(FILES[file])
    ticket = store.put(image, keep=True)
    assert store.get(ticket).image.info == {}
    assert same(ImageStore(store.directory).get(ticket).image, image)


def test_changes_of_an_image_that_was_put_do_not_reach_the_store(store):
    image = noise(0)
    ticket = store.put(image)
    image.paste((0, 0, 0), (0, 0, 40, 30))
    assert same(store.get(ticket).image, noise(0))
