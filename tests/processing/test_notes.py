"""Notes of rows: bounded in memory, and none is lost or taken for another."""

import os
import pickle
import time

import pytest

from hf_vlm_rl import ImageStore, TicketError
from hf_vlm_rl.processing.images import store as store_module
from hf_vlm_rl.processing.images.checked_files import CheckedFiles
from hf_vlm_rl.processing.images.disk import DAY, Directory, name
from hf_vlm_rl.processing.images.hashes import image_ticket
from hf_vlm_rl.processing.images.notes import TextPrompts
from hf_vlm_rl.processing.images.stored import RowNote
from tests.processing.images.noise import files, noise, same

SALT = 7


def note(number: int) -> RowNote:
    return RowNote({"answer": number, "padding": "x" * 100})


def remembered(prompts: TextPrompts, count: int) -> None:
    """Prompts of which each begins with the one before."""
    for number in range(1, count + 1):
        ids = list(range(number))
        assert prompts.remember(SALT, [*ids, 9999], prompts.keep(SALT, ids, note(number)))


@pytest.fixture
def prompts(tmp_path):
    return TextPrompts(CheckedFiles(Directory(tmp_path / "images", spill_bytes=1)))


def test_prompts_are_found_and_not_taken_for_shorter_ones(prompts):
    remembered(prompts, 30)
    for number in range(1, 31):
        assert prompts.find(SALT, [*range(number), 5555]) == (number, note(number))
    assert prompts.find(SALT + 1, list(range(30))) is None
    assert prompts.find(SALT, [5]) is None


def test_other_columns_for_a_prompt_are_refused(prompts):
    remembered(prompts, 30)
    key = prompts.keep(SALT, [0, 1], note(5))
    with pytest.raises(TicketError, match="The same prompt without an image"):
        prompts.remember(SALT, [0, 1], key)


def test_a_new_run_forgets(prompts):
    remembered(prompts, 30)
    prompts.forget()
    assert prompts.find(SALT, list(range(30))) is None
    assert prompts.remember(SALT, [0, 1], prompts.keep(SALT, [0, 1], note(5)))
    assert prompts.find(SALT, list(range(30))) == (2, note(5))


def test_of_a_prompt_whose_note_was_deleted_no_shorter_one_is_found(prompts, tmp_path):
    remembered(prompts, 3)
    key = prompts.keep(SALT, [0, 1, 2], note(3))
    (path,) = (tmp_path / "images").rglob(f"{name(key)}.prompt.json")
    path.unlink()
    with pytest.raises(TicketError, match=f"{name(key)} of a prompt was deleted"):
        prompts.find(SALT, [0, 1, 2, 9])
    assert prompts.find(SALT, [0, 1, 9]) == (2, note(2))


def test_memory_holds_no_text_of_prompts(prompts):
    remembered(prompts, 30)
    assert len(pickle.dumps(vars(prompts)["_keys"])) < 30 * 40


def test_the_notes_of_images_are_bounded_and_none_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "NOTES_BYTES", 600)
    store = ImageStore(tmp_path / "images")
    tickets = [store.put(noise(0), {"size": number % 3}, note(number).columns) for number in range(30)]
    assert len(files(store, "*.json")) >= 26
    for number, ticket in enumerate(tickets):
        assert store.row(ticket).columns == note(number).columns
        assert store.get(ticket).options == {"size": number % 3}
    assert len({store.source(ticket) for ticket in tickets}) == 3


def test_notes_that_cannot_be_written_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "NOTES_BYTES", 600)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "spilled").write_text("in the way")
    store = ImageStore(tmp_path / "images")
    refused = 0
    for number in range(10):
        try:
            store.put(noise(0), columns=note(number).columns)
        except NotADirectoryError:
            refused += 1
    assert refused >= 6
    (tmp_path / "images" / "spilled").unlink()
    tickets = [store.put(noise(0), columns=note(number).columns) for number in range(10)]
    assert [store.row(ticket).columns["answer"] for ticket in tickets] == list(range(10))


def age(store: ImageStore, days: float) -> None:
    for path in store.directory.rglob("*.*"):
        os.utime(path, (time.time() - days * DAY,) * 2)


def test_clean_removes_what_nothing_used_for_so_long(tmp_path):
    store = ImageStore(tmp_path / "images", memory_bytes=1)
    old = [store.put(noise(seed), columns={"seed": seed}, keep=True) for seed in range(3)]
    store.put(noise(3))
    store.put(noise(4))
    store.text_prompts.keep(SALT, [1, 2], note(1))
    size = sum(path.stat().st_size for path in store.directory.rglob("*.*"))
    age(store, 29.9)
    assert store.clean(older_than_days=30) == (0, 0, 0)
    age(store, 30.1)
    later = ImageStore(store.directory, memory_bytes=1)
    assert later.get(old[0]).columns == {"seed": 0}  # read: its image and note count as used
    later.put(noise(1), columns={"seed": 1}, keep=True)  # written anew: so do these
    used = sum(path.stat().st_size for path in store.directory.rglob("*.*") if is_new(path))
    cleaned = later.clean(older_than_days=30)
    assert cleaned == (4, size - used, 0)  # of eight
    assert sum(path.stat().st_size for path in store.directory.rglob("*.*")) == used
    fresh = ImageStore(store.directory)
    for seed in (0, 1):
        assert same(fresh.get(old[seed]).image, noise(seed))
    with pytest.raises(TicketError, match="No image for ticket"):
        fresh.get(old[2])
    with pytest.raises(TicketError, match="No image for ticket"):
        fresh.get(image_ticket(noise(3)))


def is_new(path) -> bool:
    return path.stat().st_mtime > time.time() - DAY


def test_clean_of_an_empty_store_does_nothing(store):
    assert store.clean(older_than_days=0) == (0, 0, 0)
