"""`hf-vlm-rl demo`: the demo of examples/demo_digits, which a wheel carries as `hf_vlm_rl/demo_digits`."""

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from .arguments import at_least

HERE = Path(__file__).parents[1]
CHECKOUT = HERE.parents[1] / "examples" / "demo_digits"
PACKAGE = "hf_vlm_rl.demo_digits"
LEAST_STEPS = 8  # the trainer logs its first reward there
NEEDED = ("matplotlib", "sklearn")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `demo`."""
    parser.add_argument("--out", type=Path, default=Path("demo_out"), help="directory (default: demo_out)")
    parser.add_argument("--seed", type=int, default=0, help="first seed (default: 0)")
    parser.add_argument(
        "--seeds", type=at_least(1), default=1, help="number of seeds, one run each (default: 1)"
    )
    parser.add_argument(
        "--steps", type=at_least(LEAST_STEPS), default=280, help="GRPO optimizer steps (default: 280)"
    )
    parser.add_argument("--threads", type=at_least(1), default=1, help="CPU threads of torch (default: 1)")


def run(options: argparse.Namespace) -> None:
    """Train a tiny InternVL to read handwritten digits, by SFT on 20 scans and GRPO on 1,277, on a CPU.

    Nothing is downloaded; a seed takes about 1.5 minutes. Needs `pip install 'hf-vlm-rl[demo]'`.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"The demo needs {' and '.join(missing)}: pip install 'hf-vlm-rl[demo]'")
    options.out.mkdir(parents=True, exist_ok=True)
    _package()
    script = importlib.import_module(f"{PACKAGE}.run")
    script.run_seeds(
        range(options.seed, options.seed + options.seeds), options.steps, options.out, options.threads
    )


def _package() -> ModuleType:
    """The package with the demo's scripts, from a wheel or from the checkout that this file is in."""
    if (HERE / "demo_digits").is_dir():
        return importlib.import_module(PACKAGE)
    if not CHECKOUT.is_dir():
        raise FileNotFoundError(f"No {HERE / 'demo_digits'} and no {CHECKOUT}. Install the wheel again.")
    where = {"submodule_search_locations": [str(CHECKOUT)]}
    spec = importlib.util.spec_from_file_location(PACKAGE, CHECKOUT / "__init__.py", **where)
    module = sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
