"""The one cache of images, tensors and notes: bounded, and nothing leaves it unseen."""

import copy
import os
import pickle
import random
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_vlm_rl.processing.images.lru import ByteBoundedCache


def texts(limit: int, before_drop=None) -> ByteBoundedCache[int, str]:
    """A cache in which a value's size is its length."""
    return ByteBoundedCache(limit, len, before_drop)


def held(cache: ByteBoundedCache) -> list[int]:
    return [key for key in range(100) if key in cache]


def test_the_least_recently_used_go_first():
    cache = texts(3)
    for key in range(3):
        cache.put(key, "x")
    assert cache.get(0) == "x"
    cache.put(3, "x")
    cache.put(2, "x")
    cache.put(4, "x")
    assert held(cache) == [2, 3, 4]
    assert cache.get(1) is None
    assert (len(cache), cache.nbytes) == (3, 3)


def test_the_newest_stays_however_large_it_is():
    cache = texts(3)
    cache.put(0, "x")
    cache.put(1, "x" * 50)
    assert held(cache) == [1]
    cache.put(2, "x")
    assert held(cache) == [2]


def test_a_key_keeps_its_first_value():
    cache = texts(10)
    first = cache.put(0, "ab")
    assert cache.put(0, "another") is first
    assert (cache.get(0), cache.nbytes) == ("ab", 2)


@given(st.integers(0, 12), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8))))
def test_the_bound_holds_after_every_step(limit, steps):
    cache = texts(limit)
    for key, size in steps:
        cache.put(key, "x" * size)
        assert cache.nbytes == sum(len(cache.get(entry)) for entry in held(cache))
        assert cache.nbytes <= limit or len(cache) == 1
        assert key in cache


def test_discarded_and_cleared_values_are_gone_without_a_call():
    dropped = []
    cache = texts(10, lambda *entry: dropped.append(entry))
    for key in range(3):
        cache.put(key, "xy")
    cache.discard(1)
    cache.discard(1)
    assert (held(cache), cache.nbytes) == ([0, 2], 4)
    cache.clear()
    assert (held(cache), cache.nbytes, dropped) == ([], 0, [])


def test_a_value_is_still_found_while_it_is_being_saved():
    seen = []
    cache = texts(2, lambda key, value: seen.append((key, value, cache.get(key), held(cache))))
    for key in range(3):
        cache.put(key, "x")
    assert seen == [(0, "x", "x", [0, 1, 2])]
    # Looking at it made it the newest but one; it goes all the same, as it was saved.
    assert held(cache) == [1, 2]


def test_a_value_that_could_not_be_saved_stays():
    full = True

    def save(key, value):
        if full:
            raise OSError("No space left on device")

    cache = texts(2, save)
    for key in range(2):
        cache.put(key, "x")
    for key in (2, 3):
        with pytest.raises(OSError, match="No space left"):
            cache.put(key, "x")
    assert held(cache) == [0, 1, 2, 3]
    full = False
    cache.put(4, "x")
    assert held(cache) == [3, 4]


@pytest.mark.parametrize("way", ["copy", "deepcopy", "pickle"])
def test_copies_begin_empty(way):
    cache = texts(2)
    cache.put(0, "x")
    twin = pickle.loads(pickle.dumps(cache)) if way == "pickle" else getattr(copy, way)(cache)
    assert (twin.limit_bytes, len(twin), twin.nbytes) == (2, 0, 0)
    twin.put(1, "x")
    assert held(cache) == [0]


def test_threads_always_find_a_value_in_the_cache_or_where_it_was_saved():
    saved, lost = {}, []

    def save(key, value):
        time.sleep(0.0005)
        saved[key] = value

    cache = texts(4, save)

    def use(seed):
        draw = random.Random(seed)
        for _ in range(60):
            key = draw.randrange(40)
            if draw.random() < 0.5 or (cache.get(key) is None and key not in known):
                cache.put(key, "x")
                known.add(key)
            elif cache.get(key) is None and key not in saved:
                lost.append(key)

    known: set[int] = set()
    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert saved
    assert lost == []
    assert cache.nbytes == len(cache) <= 5


def ends(pid: int, seconds: float) -> bool:
    """Whether a forked child ends by itself, with status 0."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_while_threads_use_the_cache_can_use_it():
    cache = texts(50)
    stop = threading.Event()

    def use():
        key = 0
        while not stop.is_set():
            cache.put(key % 100, "x")
            cache.get(key % 7)
            key += 1

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(60):
            pid = os.fork()
            if pid == 0:
                cache.put(99, "x")
                # Each thread may have been about to drop one.
                right = cache.get(99) == "x" and cache.nbytes == len(cache) <= 50 + len(threads)
                os._exit(0 if right else 1)
            assert ends(pid, 20)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
