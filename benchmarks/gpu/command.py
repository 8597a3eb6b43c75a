"""Runs the parts one after the other, each in a process of its own, and gathers what they wrote.

A process each, so that one that breaks its CUDA context, runs out of memory or of time costs the others
nothing: what it had written stays.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

from .parts import PARTS, Planned
from .report import table

ROOT = Path(__file__).parents[2]
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "flash_attn", "fla", "causal_conv1d")


def run_all(given: Namespace) -> int:
    """Run the chosen parts and write `RESULTS.md`; returns how many did not end well."""
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    sections = [_head(given)]
    _say(out, sections, sections[0])
    failed = 0
    ends = 0.0
    for name in given.parts:
        ends += PARTS[name].seconds * given.seconds / sum(PARTS[part].seconds for part in given.parts)
        section, well = _run(name, PARTS[name], out, began + ends, given)
        failed += not well
        sections.append(section)
        _say(out, sections, section)
    last = f"{time.monotonic() - began:.0f} seconds in all; {len(given.parts) - failed} parts of "
    sections.append(f"{last}{len(given.parts)} ended well.\n")
    _say(out, sections, sections[-1])
    return failed


def _say(out: Path, sections: list[str], latest: str) -> None:
    (out / "RESULTS.md").write_text("\n".join(sections))
    print(latest, flush=True)


def _run(name: str, planned: Planned, out: Path, ends: float, given: Namespace) -> tuple[str, bool]:
    written, log = out / f"{name}.md", out / f"{name}.log"
    written.unlink(missing_ok=True)
    began = time.monotonic()
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu", "--part", name, "--out", str(out)]
    # Some seconds to say what it has no time for.
    command += ["--device", given.device, "--seconds", str(max(ends - began - 8, 1))]
    command += ["--tiny"] if given.tiny else []
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=_environment(), stdout=file, stderr=file, start_new_session=True
        )
        try:
            code = process.wait(timeout=max(ends - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    text = written.read_text() if written.exists() else ""
    well = code == 0 and "**Failed**" not in text and "**FAILS**" not in text
    notes = [] if code == 0 else [_ended(code, log)]
    seconds = f"({time.monotonic() - began:.0f} seconds)"
    return "\n".join([f"## {planned.title}\n", text, *notes, seconds, ""]), well


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _ended(code: int | None, log: Path) -> str:
    how = "its time was up" if code is None else f"it ended with {code}"
    tail = log.read_text(errors="replace").splitlines()[-25:]
    return f"\n**Failed**: {how}. The end of what it said:\n\n```text\n" + "\n".join(tail) + "\n```\n"


def _environment() -> dict[str, str]:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    # One card: with several visible, the trainers would replicate the model.
    environment["CUDA_VISIBLE_DEVICES"] = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    folders = [str(ROOT)]
    if importlib.util.find_spec("hf_vlm_rl") is None:
        folders.append(str(ROOT / "src"))
    environment["PYTHONPATH"] = os.pathsep.join([*folders, environment.get("PYTHONPATH", "")]).rstrip(":")
    return environment


def _head(given: Namespace) -> str:
    import torch

    lines = ["# GPU results\n", f"`python -m benchmarks.gpu`, {time.strftime('%Y-%m-%d')}.\n"]
    card = torch.cuda.get_device_name() if given.device == "cuda" else "none: a run of the code, not figures"
    rows = [("device", card), ("python", sys.version.split()[0])]
    rows += [(name, _version(name)) for name in PACKAGES]
    if given.device == "cuda":
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        rows += [("memory", f"{memory:.0f} GiB"), ("CUDA", torch.version.cuda)]
    lines += [table(("what", "which"), head=True), *map(table, rows), ""]
    return "\n".join(lines)


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("flash-linear-attention" if name == "fla" else name)
    except PackageNotFoundError:
        return "not installed"
