"""`hf-vlm-rl env`: what a report of an error should say of the machine, and of the model."""

import argparse
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from .arguments import add_revision, add_trust, hub_arguments
from .version_sets import nearest_set

# Those that every installation has, and those that change what a trainer or a model does where they are.
REQUIRED = (
    "hf-vlm-rl",
    "torch",
    "torchvision",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "huggingface_hub",
    "tokenizers",
    "pillow",
    "numpy",
)
OPTIONAL = ("bitsandbytes", "deepspeed", "flash-attn", "kernels", "liger-kernel", "vllm")
# Of the facts that `check` finds, those that say what the library does with a model.
FACTS = ("model", "processor", "family", "derived", "sharing")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `env`."""
    parser.add_argument("--model", help="Hub id or directory; its weights are not read")
    add_revision(parser)
    add_trust(parser)


def run(options: argparse.Namespace) -> None:
    """Print versions, the nearest tested set of them, and device; with --model how its rows share prompts.

    Made to be pasted into a report of an error: no path, user name or token is in it.
    """
    lines = [*versions(), *nearest_set(), *devices()]
    if options.model:
        from PIL import Image

        from .check import facts

        found = facts(options.model, Image.new("RGB", (448, 448)), hub_arguments(options))
        lines += [(name, fact) for name, fact in found if name in FACTS]
    for name, value in lines:
        print(f"{name + ':':<18}{value}")  # noqa: T201


def versions() -> Iterator[tuple[str, str]]:
    """Pairs of a package and its version; optional packages where they are installed."""
    for package in REQUIRED:
        yield package, version(package)
    for package in OPTIONAL:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue
    yield "python", platform.python_version()
    yield "system", platform.platform()


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
