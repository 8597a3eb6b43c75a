"""Peak host memory of loading an InternVL checkpoint in the original format.

    python -m benchmarks.internvl_load [--layers 8] [--keep DIRECTORY]

Writes a random checkpoint of more than 2 GB (InternLM2 language model, 300M tower, bfloat16, shards
of 1 GB) to a temporary folder, loads it in a process of its own and prints the peak of the resident
memory that this added, relative to the size of the checkpoint: "loading" until `from_pretrained`
returns, "rss" until every weight was read once (they are mapped, not copied). The bar is 1.15.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from hf_vlm_rl.loading.internvl_chat.config import convert_config
from hf_vlm_rl.loading.internvl_chat.weights import in_original_names
from hf_vlm_rl.loading.stock import skeleton

GOLDEN = Path(__file__).parents[1] / "tests/golden/internvl/tiny-internvl2_5-internlm2/checkpoint"
SHARD_BYTES = 1_000_000_000
BAR = 1.15

CHILD = """
import json, sys, threading, time

def status():
    lines = open("/proc/self/status").read().splitlines()
    lines = [line for line in lines if line.startswith(("VmHWM", "VmRSS", "Rss"))]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}

from hf_vlm_rl import AutoVLMPolicy
from transformers import InternVLForConditionalGeneration  # imports are no part of loading
import accelerate, tokenizers
before, peaks, done = status(), {}, False

def watch():
    while not done:
        for key, value in status().items():
            peaks[key] = max(peaks.get(key, 0), value)
        time.sleep(0.005)

thread = threading.Thread(target=watch, daemon=True); thread.start()
start = time.perf_counter()
policy = AutoVLMPolicy.from_pretrained(sys.argv[1], **json.loads(sys.argv[2]))
seconds = time.perf_counter() - start
loaded = status()["VmHWM"] - before["VmRSS"]
for value in policy.state_dict().values():  # weights stay on disk until they are first read
    value.sum()
done = True; thread.join()
added = {key: peaks[key] - before[key] for key in ("RssAnon", "RssFile")}
touched = status()["VmHWM"] - before["VmRSS"]
print(json.dumps(added | {"loading": loaded, "rss": touched, "seconds": seconds}))
"""


def write(folder: Path, layers: int) -> int:
    """Write the checkpoint; returns its size in bytes."""
    for path in GOLDEN.iterdir():
        if "safetensors" not in path.name:
            shutil.copy(path, folder / path.name)
    stored = json.loads((GOLDEN / "config.json").read_text())
    stored["llm_config"] |= {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_hidden_layers": layers,
        "vocab_size": 92553,
    }
    stored["vision_config"] |= {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "image_size": 448,
    }
    stored["force_image_size"] = 448
    (folder / "config.json").write_text(json.dumps(stored))
    config = convert_config(stored, 585, True, "benchmark")
    originals = in_original_names(config, "InternLM2ForCausalLM", skeleton(config).state_dict())
    shapes = {key: tensor.shape for key, tensor in originals.items()}
    shards: list[list[str]] = [[]]
    size = 0
    for key, shape in shapes.items():
        nbytes = 2 * torch.Size(shape).numel()
        if size + nbytes > SHARD_BYTES and shards[-1]:
            shards.append([])
            size = 0
        shards[-1].append(key)
        size += nbytes
    places, total = {}, 0
    for number, keys in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {key: torch.full(shapes[key], 0.01, dtype=torch.bfloat16) for key in keys}
        save_file(tensors, folder / name, metadata={"format": "pt"})
        places |= dict.fromkeys(keys, name)
        total += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def measure(folder: Path, **options) -> dict:
    """Load in a process of its own."""
    command = [sys.executable, "-c", CHILD, str(folder), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="write (or find) the checkpoint here and keep it")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="internvl-load-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = list(folder.glob("*.safetensors"))
        size = sum(file.stat().st_size for file in files) if files else write(folder, arguments.layers)
        print(f"checkpoint: {size / 1e9:.2f} GB")
        worst = 0.0
        for options in ({}, {"dtype": "bfloat16", "device_map": "cpu"}):
            found = measure(folder, **options)
            worst = max(worst, found["rss"] / size)
            parts = ", ".join(
                f"{key} {found[key] / size:.3f}" for key in ("loading", "rss", "RssAnon", "RssFile")
            )
            print(f"{options or 'defaults'}: peak over checkpoint size: {parts}; {found['seconds']:.1f} s")
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder)
    print(f"worst {worst:.3f}, bar {BAR}: {'ok' if worst < BAR else 'TOO MUCH'}")
    return int(worst >= BAR)


if __name__ == "__main__":
    sys.exit(main())
