"""An `ImageStore` with up to a million tickets: what putting, getting and starting cost as it fills.

`python -m benchmarks.image_store` takes some minutes, and some gigabytes of disk in a temporary folder that
it removes. Microseconds are medians over 1,000 calls on images of 8 x 8 pixels, so that the store and not the
pixels is measured; a put that is kept waits for the disk to confirm it, whatever the directory holds.

- "put", "get": in memory.
- "put kept", "get from disk", "miss": in the directory; "get" by a store that has none of it in memory.
- "start": making a store on the directory.
- "scan": what `hf-vlm-rl clean` and the bound of spilled images do now and then, over all files, in seconds,
  and the memory that it adds.
"""

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from hf_vlm_rl import ImageStore
from hf_vlm_rl.errors import TicketError
from hf_vlm_rl.processing.images.hashes import image_ticket

from .gpu.report import table
from .probe import resident, start_weighing
from .trainers import processor_name

SIDE, SAMPLE = 8, 1000
IN_MEMORY = ("tickets", "put us", "get us", "bytes a ticket")
ON_DISK = (
    "tickets", "files a folder", "put kept us", "get from disk us", "miss us", "start us", "scan s",
    "scan MiB",
)  # fmt: skip


def numbered(number: int) -> Image.Image:
    """An image that no other number has."""
    return Image.frombytes("RGB", (SIDE, SIDE), number.to_bytes(8, "little") * (SIDE * SIDE * 3 // 8))


def microseconds(call: Callable[[Any], Any], values: Iterable[Any]) -> float:
    """Median of the times of a call with each value."""
    times = []
    for value in values:
        began = time.perf_counter()
        call(value)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def in_memory(sizes: list[int], folder: str) -> Iterable[tuple[Any, ...]]:
    """Fill one store's memory; a line at each size."""
    store = ImageStore(folder, memory_bytes=1 << 40)
    before, tickets = start_weighing(), []
    for size in sizes:
        tickets += [store.put(numbered(number)) for number in range(len(tickets), size - SAMPLE)]
        fresh = [numbered(number) for number in range(len(tickets), size)]
        put = microseconds(store.put, fresh)
        tickets += map(image_ticket, fresh)
        got = microseconds(store.get, tickets[:: size // SAMPLE])
        gc.collect()
        yield f"{size:,}", f"{put:.1f}", f"{got:.1f}", f"{(resident('VmRSS') - before) / size:.0f}"


def on_disk(sizes: list[int], folder: str) -> Iterable[tuple[Any, ...]]:
    """Fill one directory; a line at each size."""
    filler = ImageStore(folder, memory_bytes=0)
    # Files as the store writes them, without waiting for the disk a million times.
    os.fsync, fsync = (lambda handle: None), os.fsync
    tickets: list[int] = []
    for size in sizes:
        try:
            tickets += [filler.put(numbered(number), keep=True) for number in range(len(tickets), size)]
        finally:
            os.fsync = fsync
        os.sync()
        start = microseconds(ImageStore, [folder] * 100)
        store = ImageStore(folder, memory_bytes=0)
        got = microseconds(store.get, tickets[:: size // SAMPLE])
        missed = microseconds(partial(_miss, store), range(SAMPLE))
        fresh = [numbered((1 << 40) + size + number) for number in range(SAMPLE)]
        kept = microseconds(partial(store.put, keep=True), fresh)
        before, began = start_weighing(), time.perf_counter()
        store.clean(older_than_days=1e6)
        scan, memory = time.perf_counter() - began, resident("VmHWM") - before
        folders = [entry for entry in Path(folder, "kept").iterdir() if entry.is_dir()]
        held = len(os.listdir(folders[0]))
        os.fsync = lambda handle: None
        yield (
            f"{size:,}", f"{held:,}", f"{kept:.0f}", f"{got:.0f}", f"{missed:.0f}", f"{start:.0f}",
            f"{scan:.2f}", f"{memory / 2**20:.0f}",
        )  # fmt: skip


def _miss(store: ImageStore, number: int) -> None:
    try:
        store.get(number)
    except TicketError:
        return
    raise AssertionError(f"nobody put ticket {number}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    given = parser.parse_args()
    print(f"{processor_name()}\n\n{table(IN_MEMORY, head=True)}")
    for title, fill in ((None, in_memory), (ON_DISK, on_disk)):
        if title:
            print("\n" + table(title, head=True))
        with tempfile.TemporaryDirectory() as folder:
            for line in fill(given.sizes, folder):
                print(table(line), flush=True)


if __name__ == "__main__":
    main()
