"""One directory for several users, and for children that are forked at any moment."""

import os
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hf_vlm_rl import ImageStore
from hf_vlm_rl.processing.images.hashes import image_ticket
from tests.processing.images.noise import noise, same

NOBODY = 65534
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def in_child(work: Callable[[], bool], user: int | None = None, seconds: float = 60) -> str:
    """How a forked child ends: "yes" or "no", as `work` says, "raised", or "hangs"."""
    pid = os.fork()
    if pid == 0:
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return ("yes", "no", "raised")[os.waitstatus_to_exitcode(status)]
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


@pytest.fixture
def shared():
    """`shared(mode)`: a directory with that mode, where other users can reach it; the umask is strict."""
    folder = Path(tempfile.mkdtemp(prefix="hf_vlm_rl-users-"))
    folder.chmod(0o755)

    def make(mode: int) -> Path:
        root = folder / "images"
        root.mkdir()
        root.chmod(mode)
        return root

    before = os.umask(0o077)
    yield make
    os.umask(before)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("mode", "of_files"),
    [(0o700, 0o600), (0o755, 0o644), (0o750, 0o640), (0o2775, 0o664), (0o1777, 0o666), (0o777, 0o666)],
    ids=oct,
)
def test_everything_below_the_root_inherits_its_mode(shared, mode, of_files):
    root = shared(mode)
    store = ImageStore(root, memory_bytes=1)
    store.put(noise(0), columns={"answer": 1}, keep=True)
    for seed in range(3):
        store.put(noise(seed))
    found = {True: set(), False: set()}
    for path in root.rglob("*"):
        found[path.is_dir()].add(stat.S_IMODE(path.stat().st_mode))
    assert found == {True: {mode}, False: {of_files}}


as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user"
)


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=oct)
def test_two_users_read_and_write_one_directory(shared, mode):
    root = shared(mode)
    mine = [ImageStore(root).put(noise(seed), columns={"seed": seed}, keep=True) for seed in range(20)]

    def other() -> bool:
        store = ImageStore(root, memory_bytes=1)
        for seed in range(20):
            if store.put(noise(seed), columns={"seed": seed}, keep=True) != mine[seed]:
                return False
        for seed in range(100, 120):
            store.put(noise(seed), columns={"seed": seed}, keep=True)
            store.put(noise(seed + 100))
        return all(store.get(ticket).columns == {"seed": seed} for seed, ticket in enumerate(mine))

    assert in_child(other, NOBODY) == "yes"
    store = ImageStore(root, memory_bytes=1, spill_bytes=1)
    for seed in range(100, 120):
        assert same(store.get(image_ticket(noise(seed))).image, noise(seed))
    for seed in range(300, 310):  # sweeps what the other user spilled
        store.put(noise(seed))


@as_root
def test_another_user_reads_a_directory_that_is_readable_and_is_told_that_it_is_not_writable(shared):
    root = shared(0o755)
    kept = ImageStore(root).put(noise(0), columns={"answer": 1}, keep=True)

    def other() -> bool:
        with pytest.warns(UserWarning, match="Cannot use the image store: Permission denied"):
            store = ImageStore(root)
        if store.get(kept).columns != {"answer": 1} or not same(store.get(kept).image, noise(0)):
            return False
        store.put(noise(0), columns={"answer": 1}, keep=True)  # it is there
        with pytest.raises(PermissionError, match="Cannot use the image store"):
            store.put(noise(1), keep=True)
        return same(store.get(image_ticket(noise(1))).image, noise(1))

    assert in_child(other, NOBODY) == "yes"


@as_root
def test_the_files_of_another_user_are_neither_removed_nor_an_error(shared):
    root = shared(0o1777)
    store = ImageStore(root, memory_bytes=1)
    kept = store.put(noise(0), keep=True)
    for path in root.rglob("*.png"):
        os.utime(path, (0, 0))

    def other() -> bool:
        cleaned = ImageStore(root).clean(older_than_days=1)
        return (cleaned.files, cleaned.nbytes, cleaned.refused) == (0, 0, 1)

    assert in_child(other, NOBODY) == "yes"
    assert same(ImageStore(root).get(kept).image, noise(0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_that_are_forked_while_threads_use_the_store_never_hang(tmp_path):
    store = ImageStore(tmp_path / "images", memory_bytes=3 * 40 * 30 * 3)
    stop = threading.Event()

    def use(first: int) -> None:
        ticket = store.put(noise(first), columns={"first": first})
        while not stop.is_set():
            store.put(noise(first))
            for _ in range(500):  # one of the threads is nearly always inside a lock
                store.get(ticket)

    def child() -> bool:
        ticket = store.put(noise(99), columns={"answer": 1})
        return store.get(ticket).columns == {"answer": 1} and same(store.get(ticket).image, noise(99))

    threads = [threading.Thread(target=use, args=(number % 3,)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        assert all(in_child(child, seconds=20) == "yes" for _ in range(40))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
