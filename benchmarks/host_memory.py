"""Host memory of a generation batch: tickets against stock's pixel tensors.

`python -m benchmarks.host_memory` encodes 512 rollouts of 64 prompts with 5 images of 7 tiles each, as a
trainer does: one call of the processing class for all rows. Each side runs in a process of its own, images
come from files. Stock's tensors of all rows are tens of gigabytes, so it runs on 16 and 32 rollouts, and its
line for all of them is that straight line drawn on.

"held": resident memory after the call above that before, with the result alive. "peak": likewise, the largest
on the way. The policy's holds what it keeps of images and their pixels (both bounded), stock's none. Memory
that is freed goes back to the system at once (MALLOC_MMAP_THRESHOLD_), on both sides.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .gpu.report import table
from .models import image, stock
from .probe import resident, start_weighing
from .trainers import processor_name

GROUP = 8
QUESTION = "What do these images have in common?"


def write_images(folder: Path, name: str, tiles: int, number: int) -> None:
    for each in range(number):
        image(name, tiles, each)[0].save(folder / f"{each}.jpg", quality=90)


def conversations(folder: Path, rollouts: int, images: int) -> list[list[dict[str, Any]]]:
    """Rows of `GROUP` completions each; no image is in two prompts."""
    rows = []
    for prompt in range(rollouts // GROUP):
        paths = [folder / f"{prompt * images + number}.jpg" for number in range(images)]
        content = [{"type": "image", "path": str(path)} for path in paths]
        row = [{"role": "user", "content": [*content, {"type": "text", "text": QUESTION}]}]
        rows += [row] * GROUP
    return rows


def encode(side: str, name: str, tiles: int, rows: list[list[dict[str, Any]]]) -> dict[str, float]:
    """Encode all rows in one call: bytes held, bytes at the peak, seconds."""
    model, processing = stock(name, tiles, "meta")
    if side == "policy":
        from hf_vlm_rl import AutoVLMPolicy, ImageStore

        with tempfile.TemporaryDirectory() as directory:
            processing = AutoVLMPolicy.from_model(
                model, processing, image_store=ImageStore(directory)
            ).processing_class
            return _measured(processing, rows)
    return _measured(processing, rows)


def _measured(processing: Any, rows: list[list[dict[str, Any]]]) -> dict[str, float]:
    arguments = {
        "add_generation_prompt": True,
        "tokenize": True,
        "return_dict": True,
        "return_tensors": "pt",
        "processor_kwargs": {"padding": True, "padding_side": "left"},
    }
    processing.apply_chat_template(rows[:1], **arguments)  # loads what is loaded once
    before = start_weighing()
    began = time.perf_counter()
    batch = processing.apply_chat_template(rows, **arguments)
    seconds = time.perf_counter() - began
    peak = resident("VmHWM") - before
    gc.collect()
    held = start_weighing() - before
    pixels = batch["pixel_values"].nbytes
    return {"held": held, "peak": peak, "seconds": seconds, "pixel_values": pixels}


def _in_a_process(side: str, rollouts: int, folder: str, given: argparse.Namespace) -> dict[str, float]:
    line = [sys.executable, "-W", "ignore", "-m", "benchmarks.host_memory", "--side", side]
    line += ["--folder", folder, "--rollouts", str(rollouts)]
    for name in ("images", "tiles", "model"):
        line += [f"--{name}", str(getattr(given, name))]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    ended = subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True, env=environment)
    return json.loads(ended.stdout.splitlines()[-1])


def _compare(given: argparse.Namespace) -> None:
    print(f"{processor_name()}, {given.model}, {given.images} images of {given.tiles} tiles a prompt\n")
    print(table(("side", "rollouts", "pixel_values MiB", "held MiB", "peak MiB", "seconds"), head=True))
    few = [size for size in given.stock_rollouts if size < given.rollouts]
    with tempfile.TemporaryDirectory() as folder:
        prompts = given.rollouts // GROUP
        write_images(Path(folder), given.model, given.tiles, prompts * given.images)
        sides = {}
        runs = [("stock", size) for size in few] + [("policy", given.rollouts)]
        for side, rollouts in runs:
            sides[side, rollouts] = found = _in_a_process(side, rollouts, folder, given)
            print(_line(side, rollouts, found), flush=True)
    first, last = (sides["stock", size] for size in (few[0], few[-1]))
    steps = (given.rollouts - few[-1]) / (few[-1] - few[0])
    drawn = {key: value + steps * (value - first[key]) for key, value in last.items()}
    print(_line("stock, drawn on", given.rollouts, drawn))
    ours = sides["policy", given.rollouts]
    print(
        f"\nStock / policy: held {drawn['held'] / ours['held']:.1f}, peak {drawn['peak'] / ours['peak']:.1f}."
    )


def _line(side: str, rollouts: int, found: dict[str, float]) -> str:
    sizes = (f"{found[key] / 2**20:,.1f}" for key in ("pixel_values", "held", "peak"))
    return table((side, rollouts, *sizes, f"{found['seconds']:.0f}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=512, help=f"a multiple of {GROUP} (default 512)")
    parser.add_argument("--stock-rollouts", type=int, nargs=2, default=[16, 32])
    parser.add_argument("--images", type=int, default=5)
    parser.add_argument("--tiles", type=int, default=7)
    parser.add_argument(
        "--model", default="internvl-448", help="whose image processor (default internvl-448)"
    )
    parser.add_argument("--side", choices=["stock", "policy"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side is None:
        _compare(given)
        return
    rows = conversations(given.folder, given.rollouts, given.images)
    print(json.dumps(encode(given.side, given.model, given.tiles, rows)))


if __name__ == "__main__":
    main()
