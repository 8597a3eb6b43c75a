"""The image store in one process: tickets are contents, memory is bounded, damage is seen."""

import copy
import os
import pickle
import time

import PIL.Image
import pytest

from hf_vlm_rl import ImageStore, TicketError
from hf_vlm_rl.processing.images.disk import name
from hf_vlm_rl.processing.images.hashes import image_ticket
from tests.images import photo
from tests.processing.images.noise import files, noise, same


def test_equal_pixels_have_one_ticket_and_are_stored_once(store):
    assert store.put(noise(0)) == store.put(noise(0).copy())
    assert len(store) == 1


def test_one_changed_pixel_changes_the_ticket(store):
    changed = noise(0)
    red, green, blue = changed.getpixel((39, 29))
    changed.putpixel((39, 29), (red, green, blue ^ 1))
    assert store.put(changed) != store.put(noise(0))


def test_the_same_bytes_in_another_shape_have_another_ticket(store):
    wide, tall = PIL.Image.new("RGB", (3, 2)), PIL.Image.new("RGB", (2, 3))
    assert wide.tobytes() == tall.tobytes()
    assert store.put(wide) != store.put(tall)


def test_tickets_are_signed_64_bit_and_the_same_on_every_machine(store):
    tickets = [store.put(noise(seed)) for seed in range(64)]
    assert all(-(2**63) <= ticket < 2**63 for ticket in tickets)
    assert min(tickets) < 0 < max(tickets)
    # Datasets cached elsewhere hold such numbers: a change of the hash would lose their images.
    assert image_ticket(PIL.Image.new("RGB", (2, 1), (1, 2, 3))) == 9181612757863493950


def test_an_image_in_memory_comes_back_and_leaves_no_file(store):
    ticket = store.put(photo("coffee", (90, 60)))
    assert same(store.get(ticket).image, photo("coffee", (90, 60)))
    assert files(store) == []


def test_memory_is_bounded_and_what_leaves_it_comes_back_bit_identical(tmp_path):
    size = 40 * 30 * 3
    store = ImageStore(tmp_path / "images", memory_bytes=3 * size)
    tickets = [store.put(noise(seed)) for seed in range(10)]
    assert len(store) == 3
    assert files(store) == sorted(name(ticket) + ".png" for ticket in tickets[:7])
    for seed, ticket in enumerate(tickets):
        assert same(store.get(ticket).image, noise(seed))
    assert len(store) == 3


def test_the_least_recently_used_image_leaves_memory_first(tmp_path):
    store = ImageStore(tmp_path / "images", memory_bytes=2 * 40 * 30 * 3)
    first, second = store.put(noise(0)), store.put(noise(1))
    store.get(first)
    store.put(noise(2))
    assert files(store) == [name(second) + ".png"]


def test_a_kept_image_is_not_spilled_a_second_time(tmp_path):
    store = ImageStore(tmp_path / "images", memory_bytes=1)
    kept = store.put(noise(0), keep=True)
    spilled = store.put(noise(1))
    store.put(noise(2))
    assert files(store) == sorted(name(ticket) + ".png" for ticket in (kept, spilled))


def test_an_image_larger_than_the_memory_is_usable(tmp_path):
    store = ImageStore(tmp_path / "images", memory_bytes=1)
    assert same(store.get(store.put(noise(0))).image, noise(0))


def test_options_columns_and_tail_are_part_of_the_ticket_and_come_back(store):
    plain = store.put(noise(0))
    noted = store.put(noise(0), {"max_patches": 2}, {"answer": ["é", 1, None, {"x": 1.5}]}, 7)
    stored = store.get(noted)
    assert same(stored.image, noise(0))
    assert stored.options == {"max_patches": 2}
    assert stored.columns == {"answer": ["é", 1, None, {"x": 1.5}]}
    assert stored.tail == 7
    others = [
        store.put(noise(0), {"max_patches": 3}, {"answer": ["é", 1, None, {"x": 1.5}]}, 7),
        store.put(noise(0), {"max_patches": 2}, {"answer": "b"}, 7),
        store.put(noise(0), {"max_patches": 2}, {"answer": ["é", 1, None, {"x": 1.5}]}, 8),
        store.put(noise(1), {"max_patches": 2}, {"answer": ["é", 1, None, {"x": 1.5}]}, 7),
    ]
    assert len({plain, noted, *others}) == 6
    assert store.get(plain).columns == {}
    assert store.get(plain).tail is None


def test_the_order_of_columns_does_not_change_the_ticket(store):
    assert store.put(noise(0), columns={"a": 1, "b": 2}) == store.put(noise(0), columns={"b": 2, "a": 1})


def test_a_tail_of_zero_is_recorded(store):
    assert store.get(store.put(noise(0), tail=0)).tail == 0


def test_columns_that_json_cannot_hold_are_named(store):
    with pytest.raises(TicketError, match=r"columns \['picture'\].*must be JSON values.*not JSON serial"):
        store.put(noise(0), columns={"picture": noise(1)})


def test_a_kept_note_and_its_image_are_files(store):
    kept = store.put(noise(0), columns={"answer": "cat"}, keep=True)
    expected = [name(image_ticket(noise(0))) + ".png", name(kept) + ".json"]
    assert files(store) == sorted(expected)
    assert {path.parent.parent.name for path in store.directory.rglob("*.*")} == {"kept"}


def test_an_unknown_ticket_names_itself_the_directory_and_the_variable(store):
    with pytest.raises(TicketError) as caught:
        store.get(-2)
    assert "fffffffffffffffe" in str(caught.value)
    assert str(store.directory) in str(caught.value)
    assert "$HF_VLM_RL_CACHE" in str(caught.value)


def damaged(store: ImageStore, ticket: int, suffix: str, change) -> ImageStore:
    """A store that has to read the ticket's changed file."""
    (path,) = store.directory.rglob(name(ticket) + suffix)
    path.write_bytes(change(path.read_bytes()))
    return ImageStore(store.directory)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
        pytest.param(lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:], id="one bit flipped"),
        pytest.param(lambda data: b"not a png at all", id="no image"),
    ],
)
def test_a_damaged_image_file_is_named(store, change):
    ticket = store.put(noise(0), keep=True)
    with pytest.raises(TicketError, match=rf"{name(ticket)}\.png is cut off or no image. Encode the row"):
        damaged(store, ticket, ".png", change).get(ticket)


def test_no_truncation_of_an_image_file_changes_the_image(store):
    ticket = store.put(noise(0, (6, 5)), keep=True)
    (path,) = store.directory.rglob("*.png")
    data, refused = path.read_bytes(), 0
    for kept in range(len(data)):
        path.write_bytes(data[:kept])
        try:
            assert same(ImageStore(store.directory).get(ticket).image, noise(0, (6, 5)))
        except TicketError:
            refused += 1
    # All pixels are there before the last checksums are.
    assert refused >= len(data) - 24


def test_a_file_replaced_by_another_image_is_detected(store, tmp_path):
    ticket = store.put(noise(0), keep=True)
    noise(1).save(tmp_path / "other.png")
    other = damaged(store, ticket, ".png", lambda data: (tmp_path / "other.png").read_bytes())
    with pytest.raises(TicketError, match="holds another image than its name says"):
        other.get(ticket)


def test_an_edited_note_is_detected(store):
    ticket = store.put(noise(0), columns={"answer": "cat"}, keep=True)
    edited = damaged(store, ticket, ".json", lambda data: data.replace(b"cat", b"dog"))
    with pytest.raises(TicketError, match="does not hold what"):
        edited.get(ticket)


def test_spilled_images_beyond_the_bound_go_oldest_first_and_kept_ones_stay(tmp_path):
    one = 6_000  # more than a PNG of 40 x 30 random pixels takes
    store = ImageStore(tmp_path / "images", memory_bytes=1, spill_bytes=8 * one)
    kept = store.put(noise(1000), keep=True)
    now = time.time()
    for seed in range(40):
        ticket = store.put(noise(seed))
        for path in (store.directory / "spilled").rglob("*.png"):
            if path.stat().st_mtime > now - 1000:  # the newest: written a second after the last
                os.utime(path, (now - 10_000 + seed, now - 10_000 + seed))
    spilled = set(files(store, "spilled/*/*.png"))
    newest_first = [name(image_ticket(noise(seed))) + ".png" for seed in range(38, -1, -1)]
    assert 3 <= len(spilled) <= 16
    assert spilled == set(newest_first[: len(spilled)])
    assert same(store.get(ticket).image, noise(39))
    with pytest.raises(TicketError, match="neither in memory nor in"):
        store.get(image_ticket(noise(0)))
    assert same(ImageStore(store.directory).get(kept).image, noise(1000))


def test_a_path_that_cannot_be_a_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match=r"Cannot use the image store: Not a directory.*images"):
        store = ImageStore(tmp_path / "file" / "images")
    with pytest.raises(NotADirectoryError, match=r"Cannot use the image store.*images"):
        store.put(noise(0), keep=True)


def test_copies_are_the_store_itself(store):
    assert copy.deepcopy({"store": store})["store"] is store
    assert copy.copy(store) is store


def test_a_pickled_store_shares_the_directory_and_not_the_memory(store):
    in_memory, kept = store.put(noise(0)), store.put(noise(1), columns={"answer": 1}, keep=True)
    other = pickle.loads(pickle.dumps(store))
    assert (other.directory, other.memory_bytes, other.spill_bytes, len(other)) == (
        store.directory,
        store.memory_bytes,
        store.spill_bytes,
        0,
    )
    assert other.get(kept).columns == {"answer": 1}
    with pytest.raises(TicketError):
        other.get(in_memory)


def test_what_an_unpickled_store_puts_can_be_read_by_the_original(store):
    ticket = pickle.loads(pickle.dumps(store)).put(noise(0), columns={"answer": 1})
    assert store.get(ticket).columns == {"answer": 1}


def test_ranks_of_one_job_read_each_others_tickets(store, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    ticket = store.put(noise(0), {"max_patches": 2})
    assert same(ImageStore(store.directory).get(ticket).image, noise(0))
