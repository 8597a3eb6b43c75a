"""`hf-vlm-rl env`: what a report of an error should say of the machine, and of the model."""

import argparse
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .arguments import add_revision, add_trust, hub_arguments
from .version_sets import installed, nearest_set, required

# Besides what this package needs: what changes what a trainer or a model does where it is.
OPTIONAL = ("bitsandbytes", "deepspeed", "flash-attn", "kernels", "liger-kernel", "vllm")
IMPORT = """
try:
    from trl import DPOTrainer, GRPOTrainer, SFTTrainer
except Exception as error:
    print(error)
    raise SystemExit(1)
"""
# Errors of this import: why they come, and the command that mends them.
KNOWN = {
    "Invalid version: 'N/A'": ("TRL takes the folder vllm for the package", "mv vllm vllm_files"),
    "No module named 'requests'": ("TRL before 1.14 needs it and does not say so", "pip install requests"),
}
# Of the facts that `check` finds, those that say what the library does with a model.
FACTS = ("model", "processor", "family", "derived", "sharing")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `env`."""
    parser.add_argument("--model", help="Hub id or directory; its weights are not read")
    add_revision(parser)
    add_trust(parser)


def run(options: argparse.Namespace) -> None:
    """Print versions, the nearest tested set, whether TRL's trainers can be imported, and the device.

    With --model also how its rows share prompts. Imports look into the current folder first: run it in the
    folder of your script. Made to be pasted into a report of an error: no path, user name or token is in it.
    """
    model: list[tuple[str, str]] = []
    if options.model:
        from PIL import Image

        from .check import facts

        all_facts = facts(options.model, Image.new("RGB", (448, 448)), hub_arguments(options))
        model = [(name, fact) for name, fact in all_facts if name in FACTS]
    lines = [*versions(), *nearest_set(), *trainers(), *devices(), *model]
    for name, value in lines:
        print(f"{name + ':':<18}{value}")  # noqa: T201


def versions() -> Iterator[tuple[str, str]]:
    """Pairs of a package and its version, where it is installed."""
    for package in ("hf-vlm-rl", *(each.name for each in required("hf-vlm-rl")), *OPTIONAL):
        if version := installed(package):
            yield package, version
    yield "python", platform.python_version()
    yield "system", platform.platform()


def trainers() -> Iterator[tuple[str, str]]:
    """Pairs that say whether TRL's trainers can be imported here; if not, why, and what mends it."""
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=False)
    last = done.stdout.strip().rpartition("\n")[2].replace(str(Path.home()), "~")
    reason = re.sub(r"[/~]\S*[/\\]", "", last) or f"status {done.returncode}"  # no paths
    yield "TRL's trainers", f"cannot be imported: {reason}" if done.returncode else "can be imported"
    for error, (why, command) in KNOWN.items():
        if done.returncode and error in done.stdout:
            yield from (("why", why), ("to mend it", command))


def devices() -> Iterator[tuple[str, str]]:
    """Pairs that say what torch computes on: each accelerator with its memory, or the CPU's threads."""
    import torch

    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    yield "torch built with", built
    if not torch.accelerator.is_available():
        yield "device", f"cpu, {torch.get_num_threads()} threads"
    elif torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            yield f"device {index}", f"{properties.name}, {properties.total_memory / (1 << 30):.0f} GiB"
    else:
        yield "device", str(torch.accelerator.current_accelerator())
