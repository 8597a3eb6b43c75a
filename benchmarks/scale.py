"""How the cost of a GRPO step grows, for stock and policy: time and memory against each size of a step.

`python -m benchmarks.scale` takes about six minutes on one core. It prints a table, writes every figure to
outputs/scale/scale.csv and, with matplotlib, the plot of docs/performance.md; `--read` plots figures again.

Growth is the exponent between the two largest sizes of an axis: 1 is linear, 2 quadratic. Where less is
shared at the larger size (long completions), the policy's cost approaches stock's from below, so its exponent
may be larger than stock's by that of the token ratio. What grows faster than that by more than 0.15 is named
below the table.
"""

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import trl

from .gpu.report import table
from .trainers import Measured, Shape, measure, processor_name

USUAL = Shape("grpo", 8, 7, 16)
# Each axis: its label, the shapes, and what is plotted along it.
AXES: dict[str, tuple[str, list[Shape]]] = {
    "group": ("completions of a prompt", [replace(USUAL, group=size) for size in (2, 4, 8, 16, 32, 64)]),
    "tiles": ("tiles of an image", [replace(USUAL, tiles=size) for size in (1, 5, 10, 21, 40)]),
    "images": (
        "images of a prompt",
        [replace(USUAL, tiles=1, images=size) for size in (1, 3, 10, 30)],
    ),
    "words": (
        "words of a prompt",
        [replace(USUAL, tiles=1, words=size) for size in (64, 256, 1024, 4096)],
    ),
    "completion": (
        "tokens of a completion",
        [replace(USUAL, completion=size) for size in (8, 32, 128, 512)],
    ),
}
QUANTITIES = ("preprocess", "rollout", "update", "rest", "step", "memory")
HEAD = ("axis", "size", "prompt", "token ratio", *QUANTITIES)
LARGER, SHARE = 0.15, 0.05

Row = dict[str, Any]


def figures(axis: str, measured: Measured) -> list[Row]:
    """Two rows, of stock and policy: seconds of each part of a step, and bytes."""
    rows = []
    for side, name in enumerate(("stock", "policy")):
        parts = {
            "preprocess": measured.taken("preprocess")[side],
            "rollout": measured.taken("rollout")[side],
            "update": measured.taken("log-probs", "backward")[side],
            "step": measured.taken("step")[side],
            "memory": measured.peaks[side],
        }
        parts["rest"] = parts["step"] - sum(parts[part] for part in ("preprocess", "rollout", "update"))
        size = getattr(measured.shape, axis)
        about = {"axis": axis, "size": size, "prompt": measured.prompt, "side": name}
        rows.append({**about, "token ratio": round(measured.token_ratio, 3), **parts})
    return rows


def growth(rows: Sequence[Row], quantity: str) -> dict[str, float]:
    """The exponent between the two largest sizes of an axis, of stock and policy."""
    exponents = {}
    for side in ("stock", "policy"):
        before, last = [row for row in rows if row["side"] == side][-2:]
        sizes = math.log(last["size"] / before["size"])
        amounts = [max(row[quantity], 1e-9) for row in (before, last)]
        exponents[side] = math.log(amounts[1] / amounts[0]) / sizes
    return exponents


def grows_faster(rows: Sequence[Row], quantity: str) -> bool:
    """Whether a quantity of the policy's grows faster than stock's, and counts at the largest size."""
    exponents = growth(rows, quantity)
    before, last = [row for row in rows if row["side"] == "policy"][-2:]
    less_shared = math.log(before["token ratio"] / last["token ratio"])
    allowed = exponents["stock"] + max(less_shared, 0.0) / math.log(last["size"] / before["size"]) + LARGER
    counts = quantity == "memory" or last[quantity] > SHARE * last["step"]
    return counts and exponents["policy"] > allowed


def sizes_line(stock: Row, policy: Row) -> str:
    """The table's line of one size: stock -> policy."""
    cells = [_pair(stock[quantity], policy[quantity], quantity) for quantity in QUANTITIES]
    return table([stock["axis"], stock["size"], stock["prompt"], policy["token ratio"], *cells])


def growth_line(rows: Sequence[Row]) -> str:
    """The table's line of an axis: exponents of stock -> policy."""
    exponents = [growth(rows, quantity) for quantity in QUANTITIES]
    cells = [f"{each['stock']:.2f} -> {each['policy']:.2f}" for each in exponents]
    return table([f"*{rows[0]['axis']}*", "*growth*", "", "", *cells])


def _pair(stock: float, policy: float, quantity: str) -> str:
    if quantity == "memory":
        return f"{stock / 2**20:.1f} -> {policy / 2**20:.1f} MiB"
    return f"{stock:.3f} -> {policy:.3f}"


def plot(by_axis: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Seconds of a step above, memory of an update below, an axis in each column."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, len(by_axis), figsize=(3.1 * len(by_axis), 5.4), squeeze=False)
    for column, (axis, rows) in enumerate(by_axis.items()):
        for line, (quantity, unit, label) in enumerate(
            (("step", 1.0, "seconds of a step"), ("memory", 2.0**20, "MiB of an update"))
        ):
            panel = panels[line][column]
            for side, colour in (("stock", "tab:gray"), ("policy", "tab:blue")):
                chosen = [row for row in rows if row["side"] == side]
                sizes, amounts = ([row[key] for row in chosen] for key in ("size", quantity))
                panel.loglog(sizes, [amount / unit for amount in amounts], "o-", color=colour, label=side)
            panel.set_xlabel(AXES[axis][0])
            panel.set_xticks(sizes, [str(size) for size in sizes])
            panel.minorticks_off()
            panel.grid(alpha=0.3)
            if column == 0:
                panel.set_ylabel(label)
    panels[0][0].legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--sizes", type=int, help="only the first so many sizes of each axis")
    parser.add_argument("--model", default="scale", help="one of benchmarks.sizes.SIZES (default scale)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("outputs/scale"))
    parser.add_argument("--plot", type=Path, default=Path("docs/images/scale.png"))
    parser.add_argument("--read", type=Path, metavar="CSV", help="figures of an earlier run, to plot again")
    given = parser.parse_args()
    by_axis = _read(given.read) if given.read else _measure_all(given)
    faster = [
        f"{axis}: {quantity}"
        for axis, rows in by_axis.items()
        for quantity in QUANTITIES
        if grows_faster(rows, quantity)
    ]
    print("\nGrows faster than stock's: " + (", ".join(faster) or "nothing") + ".")
    plot(by_axis, given.plot)


def _measure_all(given: argparse.Namespace) -> dict[str, list[Row]]:
    versions = f"torch {torch.__version__}, TRL {trl.__version__}"
    print(f"{processor_name()}, {torch.get_num_threads()} threads, {versions}\n")
    print(table(HEAD, head=True))
    by_axis: dict[str, list[Row]] = {}
    for axis in given.axes:
        rows: list[Row] = []
        for shape in AXES[axis][1][: given.sizes]:
            measured = measure(given.model, shape, given.repeats, given.device, tensors=True)
            rows += figures(axis, measured)
            print(sizes_line(*rows[-2:]), flush=True)
        by_axis[axis] = rows
        print(growth_line(rows), flush=True)
    _save(by_axis, given.out)
    return by_axis


def _read(path: Path) -> dict[str, list[Row]]:
    by_axis: dict[str, list[Row]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            numbers = {key: float(value) for key, value in row.items() if key not in ("axis", "side")}
            by_axis.setdefault(row["axis"], []).append({**row, **numbers, "size": int(row["size"])})
    return by_axis


def _save(by_axis: Mapping[str, Sequence[Row]], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    rows = [row for rows in by_axis.values() for row in rows]
    with (out / "scale.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
