"""The same GRPO in stock TRL, on the policy and in ms-swift, on a CPU: `make peers`.

Every run is a process of its own. Systems take turns, as many rounds as asked, and each trains on the same
checkpoint, images, adapter and completions. Compared are processor seconds and resident memory, which other
work on the machine disturbs less than time. The norm of the gradients says whether two systems computed the
same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..trainers import processor_name
from .setting import Setting

ROOT = Path(__file__).parents[2]
NEWEST = {"PYTHONPATH": str(ROOT / ".lanes" / "trl-latest")}
SWIFT = ROOT / ".lanes" / "peers" / "swift" / "bin" / "python"
TRL = (sys.executable, "benchmarks.peers.run_trl")
# Interpreter, module and environment of each side; ratios are to the first.
SIDES: dict[str, tuple[str, str, dict[str, str]]] = {
    "policy": (*TRL, {}),
    "policy, newest TRL": (*TRL, NEWEST),
    "stock": (*TRL, {}),
    "stock, newest TRL": (*TRL, NEWEST),
    "ms-swift": (str(SWIFT), "benchmarks.peers.run_swift", {}),
}
# Name, words of the vocabulary, and what is not as in `Setting`.
CASES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("TRL's defaults", 32768, {}),
    ("micro-batches of 1", 32768, {"micro": 1}),
    ("completions of 128", 32768, {"completion": 128}),
    ("few words, no checkpointing", 408, {"checkpointing": False}),
)
PARTS = ("step", "rollout", "update")
COLUMNS = ("case", "system", "TRL", "step", "rollout", "update", "memory above held", "peak", "gradient norm")
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
}
Figures = dict[str, Any]


def run(side: str, setting: Setting) -> Figures:
    """The figures of one side, from a process of its own.

    Raises:
        RuntimeError: If it fails; with the end of what it said.
    """
    python, module, environment = SIDES[side]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "figures.json")
        line = [python, "-W", "ignore", "-m", module, "--side", side, "--setting", setting.told()]
        ended = subprocess.run(
            [*line, "--out", str(out)],
            cwd=ROOT,
            env=os.environ | QUIET | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if not out.exists():
            said = (ended.stdout + ended.stderr)[-3000:]
            raise RuntimeError(f"{side} ended with status {ended.returncode}:\n{said}")
        return json.loads(out.read_text())


def lines(case: str, rounds: dict[str, Sequence[Figures]]) -> list[str]:
    """The table's lines of a case: the first side in seconds and MB, the others as ratios to it."""
    medians = {
        side: {name: statistics.median(each[name] for each in taken) for name in (*PARTS, "above", "peak")}
        for side, taken in rounds.items()
    }
    first, *others = medians
    ours = medians[first]
    rows = [[case, first, rounds[first][0]["trl"], *(f"{ours[part]:.2f} s" for part in PARTS)]]
    rows[0] += [f"{ours['above']:.0f} MB", f"{ours['peak']:.0f} MB", _norm(rounds[first])]
    for side in others:
        ratios = [f"{medians[side][name] / ours[name]:.2f}" for name in ours]
        rows.append([case, side, rounds[side][0]["trl"], *ratios, _norm(rounds[side])])
    return ["| " + " | ".join(row) + " |" for row in rows]


def _norm(taken: Sequence[Figures]) -> str:
    return f"{taken[0]['norm']:.6f}" if taken[0]["norm"] is not None else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [name for name, *_ in CASES]
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="the first one warms up and is not counted")
    given = parser.parse_args()
    print(f"{processor_name()}, one thread, {given.rounds} rounds of {given.steps - 1} steps\n")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for name, vocabulary, changes in (case for case in CASES if case[0] in given.cases):
            here = Path(folder, str(vocabulary))
            if not here.exists():
                here.mkdir()
                words = ["-m", "benchmarks.peers.checkpoint", str(here), "--vocabulary", str(vocabulary)]
                subprocess.run(
                    [sys.executable, "-W", "ignore", *words], cwd=ROOT, env=os.environ | QUIET, check=True
                )
            setting = replace(Setting(str(here), steps=given.steps), **changes)
            rounds: dict[str, list[Figures]] = {side: [] for side in given.sides}
            for _ in range(given.rounds):
                for side, taken in rounds.items():
                    taken.append(run(side, setting))
            print("\n".join(lines(name, rounds)), flush=True)


if __name__ == "__main__":
    main()
