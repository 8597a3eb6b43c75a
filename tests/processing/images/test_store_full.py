"""A rank whose disk refuses to write goes on with what its memory has room for, and says so."""

import os
import pickle
import socket

import pytest

from hf_vlm_rl import ImageStore
from hf_vlm_rl.processing.images.disk import SPILL_BYTES
from tests.processing.images.noise import files, noise, same

ONE = 40 * 30 * 3  # bytes of an image of noise


@pytest.fixture
def full_disk(monkeypatch):
    """`full_disk(True)`: from now on, files can be opened and nothing written to them."""
    real = os.fdopen

    def full(handle, mode):
        real(handle, mode).close()
        return open("/dev/full", mode)

    return lambda is_full: monkeypatch.setattr(os, "fdopen", full if is_full else real)


@pytest.fixture
def rank(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")


def test_a_rank_with_a_full_disk_keeps_images_notes_and_videos_in_memory_and_says_so(store, rank, full_disk):
    full_disk(True)
    told = f"No space left on device, on rank 1 of host {socket.gethostname()}.*stay in its memory"
    with pytest.warns(UserWarning, match=told):
        plain = store.put(noise(0))
    with pytest.warns(UserWarning, match=told):
        noted = store.put(noise(1), columns={"answer": 1})
    with pytest.warns(UserWarning, match=told):
        video = store.put_frames([noise(2), noise(3)], {"fps": 1})
    assert files(store) == []
    assert same(store.get(plain).image, noise(0))
    assert same(store.get(noted).image, noise(1))
    assert store.get(noted).columns == {"answer": 1}
    assert store.get(video.ticket).image == video
    assert same(store.frame(video.frames[1]), noise(3))
    full_disk(False)
    store.put(noise(0))
    assert len(files(store)) == 1


@pytest.mark.filterwarnings("ignore:.*Cannot use the image store")
def test_beyond_its_memory_a_rank_with_a_full_disk_ends_and_has_lost_nothing(tmp_path, rank, full_disk):
    store = ImageStore(tmp_path / "images", memory_bytes=2 * ONE)
    full_disk(True)
    tickets = [store.put(noise(seed)) for seed in range(2)]
    with pytest.raises(OSError, match=r"No space left on device.*make room"):
        store.put(noise(2))
    assert all(same(store.get(ticket).image, noise(seed)) for seed, ticket in enumerate(tickets))


def test_what_others_were_promised_is_an_error(store, rank, full_disk):
    full_disk(True)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left on device"):
            store.put(noise(0), keep=True)  # a later run reads it
    worker = pickle.loads(pickle.dumps(store))
    with pytest.raises(OSError, match="No space left on device"):
        worker.put(noise(1))  # its memory ends with it


def test_the_environment_bounds_what_is_spilled(tmp_path, monkeypatch):
    before = pickle.dumps(ImageStore(tmp_path / "images"))
    assert ImageStore(tmp_path / "images").spill_bytes == SPILL_BYTES
    size = 4 * ONE
    monkeypatch.setenv("HF_VLM_RL_SPILL_BYTES", str(size))
    store = ImageStore(tmp_path / "images", memory_bytes=1)
    for seed in range(20):
        store.put(noise(seed))
    assert 0 < sum(path.stat().st_size for path in store.directory.rglob("*.png")) <= size + 2 * ONE
    # `datasets` hashes a store with a map function: the bound must not ask for another encoding.
    assert pickle.dumps(ImageStore(tmp_path / "images")) == before
    assert pickle.loads(before).spill_bytes == size
    assert ImageStore(tmp_path / "images", spill_bytes=7).spill_bytes == 7


@pytest.mark.parametrize("bound", ["16 GiB", "0", "-1", ""])
def test_a_bound_that_is_no_number_is_refused(bound, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_VLM_RL_SPILL_BYTES", bound)
    with pytest.raises(ValueError, match=r"HF_VLM_RL_SPILL_BYTES=.*Expected a whole number of bytes above 0"):
        ImageStore(tmp_path / "images")
