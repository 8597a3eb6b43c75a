"""Time and memory of `hf_vlm_rl.data.load_llava`.

    python -m benchmarks.data_loading [--rows 10000 100000]

Writes rows of VLM-R1's form (one photo out of 18, a question, a box) as JSON Lines and as a JSON list, and
loads each in a process of its own: wall and processor time of the first load and of a second one from the
cache, and the memory that the first load adds at its peak (anonymous: the rows themselves are mapped from
disk). `way` "from_generator" hands the same rows with the same types to `Dataset.from_generator`; its second
load checks the rows again. At last one pass over the first 2,000 rows, photos of 256 x 256 pixels decoded.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.images import PHOTOS, photo

CHILD = """
import json, os, sys, threading, time
path, way, cache, decoded = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
os.environ["HF_DATASETS_CACHE"] = cache
import datasets, PIL.Image
from hf_vlm_rl.data import load_llava
import hf_vlm_rl.data.llava
from hf_vlm_rl.data.passes.first_pass import Part, plan
datasets.disable_progress_bars()

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024

def load():
    if way == "load_llava":
        return load_llava(path)
    from hf_vlm_rl.data.llava import llava_source
    from hf_vlm_rl.data.passes.options import Options
    part = Part(llava_source(path, os.path.dirname(path), Options()))
    found = plan([part], Options())
    return datasets.Dataset.from_generator(
        part.rows,
        features=found.features,
        gen_kwargs={"kept": found.kept[0]},
        fingerprint=os.path.basename(path),
    )

before, peak, done = anonymous(), 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.002)
thread = threading.Thread(target=watch, daemon=True); thread.start()
wall, cpu = time.perf_counter(), time.process_time()
dataset = load()
result = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
done = True; thread.join()
wall = time.perf_counter(); load()
result |= {"memory": peak - before, "again": time.perf_counter() - wall}
if decoded:
    wall = time.perf_counter()
    for row, _ in zip(dataset, range(decoded)):
        assert row["images"][0].size
    result["loaded"] = decoded / (time.perf_counter() - wall)
print(json.dumps(result))
"""


def write(folder: Path, number: int, form: str) -> Path:
    """A file of so many rows, written row by row."""
    path = folder / f"{number}.{form}"
    with open(path, "w") as file:
        for i in range(number):
            row = {
                "id": i,
                "image": f"{PHOTOS[i % len(PHOTOS)]}.png",
                "conversations": [
                    {
                        "from": "human",
                        "value": f"<image>\nWhere is object {i}? Think, then answer with a box.",
                    },
                    {"from": "gpt", "value": f"<answer>[{i}, 2, 3, 4]</answer>"},
                ],
                "bbox": [i, 2, 3, 4.5],
                "image_size": [256, 256],
                "dataset": "benchmark",
            }
            before = ("[" if i == 0 else ",\n") if form == "json" else ""
            file.write(before + json.dumps(row) + ("\n" if form == "jsonl" else ""))
        file.write("]" if form == "json" else "")
    return path


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    given = parser.parse_args()
    print("| file | rows | MB | way | first load, s | processor, s | memory added, MB | again, s |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in PHOTOS:
            photo(each, (256, 256)).save(folder / f"{each}.png")
        for form in ("jsonl", "json"):
            for number in given.rows:
                path = write(folder, number, form)
                size = path.stat().st_size / 1e6
                for way in ("load_llava", "from_generator"):
                    last = form == "json" and number == given.rows[-1] and way == "load_llava"
                    found = measured(path, way, folder / "cache" / way, 2_000 if last else 0)
                    values = [f"{found[name]:.1f}" for name in ("wall", "cpu", "memory")]
                    values = [form, f"{number:,}", f"{size:.0f}", way, *values, f"{found['again']:.2f}"]
                    print(f"| {' | '.join(values)} |", flush=True)
                    if last:
                        epoch = found
    print(f"\nDecoding: {epoch['loaded']:.0f} rows/s.")


def measured(path: Path, way: str, cache: Path, decoded: int) -> dict[str, float]:
    """What the child process says."""
    command = [sys.executable, "-c", CHILD, str(path), way, str(cache), str(decoded)]
    child = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(child.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
