"""The image store between processes: whoever has a ticket and the directory has the image."""

import hashlib
import multiprocessing
import os
import pickle
import subprocess
import sys

import PIL.Image
import pytest

from hf_vlm_rl import ImageStore, TicketError
from hf_vlm_rl.processing.images.hashes import image_ticket
from tests.processing.images.noise import noise

COUNT = 12


def put_all(store: ImageStore, keep: bool, start, result) -> None:
    """In a worker: wait for the others, then put every image with a note."""
    start.wait(60)
    tickets = [store.put(noise(seed), columns={"seed": seed}, keep=keep) for seed in range(COUNT)]
    result.put(tickets)


def in_workers(method: str, store: ImageStore, workers: int, keep: bool) -> list[list[int]]:
    context = multiprocessing.get_context(method)
    start, result = context.Barrier(workers), context.Queue()
    processes = [context.Process(target=put_all, args=(store, keep, start, result)) for _ in range(workers)]
    for process in processes:
        process.start()
    tickets = [result.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * workers
    return tickets


def assert_all_readable(store: ImageStore, tickets: list[int]) -> None:
    for seed, ticket in enumerate(tickets):
        stored = store.get(ticket)
        assert stored.columns == {"seed": seed}
        assert stored.image.tobytes() == noise(seed).tobytes()


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "spilled"])
def test_processes_that_write_the_same_images_at_once_leave_whole_files(store, keep):
    tickets = in_workers("spawn", store, workers=4, keep=keep)
    assert tickets == tickets[:1] * 4
    files = [path for path in store.directory.rglob("*.*") if path.is_file()]
    assert sorted(path.suffix for path in files) == [".json"] * COUNT + [".png"] * COUNT
    assert not [path for path in store.directory.rglob("*") if path.name.endswith(".tmp")]
    assert_all_readable(ImageStore(store.directory), tickets[0])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_parent_reads_what_a_worker_put(store, method):
    store.put(noise(0))  # a forked worker finds this one in its memory, and must write it all the same
    (tickets,) = in_workers(method, store, workers=1, keep=False)
    assert_all_readable(store, tickets)


def run_python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_later_run_reads_what_was_kept_and_not_what_was_in_memory(store):
    kept = store.put(noise(0), columns={"answer": "cat"}, keep=True)
    in_memory = store.put(noise(1))
    code = (
        "import hashlib, sys\n"
        "from hf_vlm_rl import ImageStore, TicketError\n"
        "store = ImageStore(sys.argv[1])\n"
        "stored = store.get(int(sys.argv[2]))\n"
        "print(stored.columns['answer'], hashlib.sha256(stored.image.tobytes()).hexdigest())\n"
        "try:\n"
        "    store.get(int(sys.argv[3]))\n"
        "except TicketError:\n"
        "    print('gone')\n"
    )
    digest = hashlib.sha256(noise(0).tobytes()).hexdigest()
    told = run_python(code, str(store.directory), str(kept), str(in_memory))
    assert told == f"cat {digest}\ngone"


def test_tickets_are_the_same_in_every_process(store):
    code = (
        "from hf_vlm_rl.processing.images.hashes import image_ticket\n"
        "import PIL.Image\n"
        "print(image_ticket(PIL.Image.new('RGB', (5, 3), (9, 8, 7))))"
    )
    assert int(run_python(code)) == image_ticket(PIL.Image.new("RGB", (5, 3), (9, 8, 7)))


def test_the_pickle_does_not_depend_on_the_process_or_on_what_is_stored(store):
    # `datasets` hashes a map function with everything it holds to find its cache again.
    code = (
        "import pickle, sys\n"
        "from hf_vlm_rl import ImageStore\n"
        "print(pickle.dumps(ImageStore(sys.argv[1])).hex())"
    )
    store.put(noise(0), columns={"answer": 1})
    assert run_python(code, str(store.directory)) == pickle.dumps(store).hex()


def test_the_default_directory_follows_the_environment(store, monkeypatch):
    monkeypatch.setenv("HF_VLM_RL_CACHE", str(store.directory))
    ticket = store.put(noise(0), keep=True)
    assert ImageStore().directory == store.directory
    assert ImageStore().get(ticket).image.tobytes() == noise(0).tobytes()
    monkeypatch.delenv("HF_VLM_RL_CACHE")
    assert ImageStore().directory.name == "hf_vlm_rl"


def test_a_sweep_by_another_process_loses_the_ticket_loudly(store):
    (tickets,) = in_workers("spawn", store, workers=1, keep=False)
    for path in store.directory.rglob("*.png"):
        os.unlink(path)
    with pytest.raises(TicketError, match="neither in memory nor in"):
        store.get(tickets[0])
