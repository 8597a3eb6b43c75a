"""TRL's asynchronous trainers, wherever this TRL has them, in a process without a card or a server."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from types import ModuleType

from .homes import home

ROOT = Path(__file__).parents[2]

NAMES = {"async_grpo": "AsyncGRPO", "async_distillation": "AsyncDistillation"}


def asynchronous(package: str) -> tuple[type, type]:
    """The trainer and the config of a package of `trl.experimental`, which may be stable by now."""
    name = NAMES[package]
    module = home(package, f"{name}Trainer")
    return getattr(module, f"{name}Trainer"), getattr(module, f"{name}Config")


def module_of(trainer: type) -> ModuleType:
    """The module in which a trainer is written."""
    return sys.modules[trainer.__module__]


def without_aiohttp() -> None:
    """Let TRL's worker be imported, which none starts, where its client is not installed."""
    if importlib.util.find_spec("aiohttp") is None:
        client = types.ModuleType("aiohttp")
        client.__spec__ = importlib.machinery.ModuleSpec("aiohttp", None)
        client.ClientError, client.ClientTimeout, client.ClientSession = OSError, object, object
        sys.modules["aiohttp"] = client


def without_card(trainer: type) -> None:
    """For the rest of this process: no name of a card, and no kernel for it (TRL before 1.16).

    The attention of tries, which TRL 1.16 asks for, is left to the policy to take away.
    """
    module = module_of(trainer)
    module.get_peak_flops_per_device = lambda *_: None
    if hasattr(module, "TREE_ATTENTION"):
        return

    def unaccelerated(load):
        def without_kernel(*given, **options):
            del options["attn_implementation"]
            return load(*given, **options)

        return without_kernel

    if hasattr(module, "create_model_from_path"):
        module.create_model_from_path = unaccelerated(module.create_model_from_path)
    else:
        load = unaccelerated(module.AutoModelForCausalLM.from_pretrained)
        module.AutoModelForCausalLM = types.SimpleNamespace(from_pretrained=load)


def ended(package: str, families: tuple[str, ...], checkpoint) -> subprocess.CompletedProcess:
    """How `tests.trainers.async_runs` ended for the checkpoints of some families."""
    (base,) = {str(checkpoint(family).parent) for family in families}
    command = [sys.executable, "-m", "tests.trainers.async_runs", base, package, *families]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def results(package: str, families: tuple[str, ...], checkpoint) -> list[dict]:
    """What each of its runs saw."""
    done = ended(package, families, checkpoint)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line) for line in lines]
