"""Write the tables of docs/vllm.md from what runs with a real vLLM recorded.

    rm tests/vllm/engine/*.jsonl
    HF_VLM_RL_VLLM_FIGURES=tests/vllm/engine/figures.jsonl make test-vllm
    PYTHONPATH=.:tests/vllm/engine/start .lanes/vllm/bin/python -m tests.vllm.engine.overhead \
        tests/vllm/engine/overhead.jsonl
    PYTHONPATH=.:tests/vllm/engine/start .lanes/vllm/bin/python -m tests.vllm.engine.every_class \
        tests/vllm/engine/classes.jsonl
    make docs

A test fails when the page is not what this script writes.
"""

import json
import re
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "vllm.md"
RUNS = ROOT / "tests" / "vllm" / "engine"
FIGURES = """\
| trainer, way | model | weights | largest difference of log-probs, each step | importance ratio, each step |
|---|---|---|---|---|
"""
# What a run recorded as its way, and what the page says.
WAYS = {
    "vllm_rollout": "`vllm_rollout`, in its process",
    "read_tickets": "`read_tickets`, in its process",
    "vllm_rollout, server": "`vllm_rollout`, a server",
    "front": "a front, servers",
}
TOOLS = ", images of tools"
OVERHEAD = """\
| request | direct | through a front | ratio, rounds |
|---|---|---|---|
"""
CLOSE = 1e-3  # what the tests ask for
CLASSES = """\
| `model_type` | vLLM 0.30 on a CPU, float32, transformers 5.23, three steps with LoRA |
|---|---|
"""


def rows(name: str) -> list[dict[str, Any]]:
    """What a run recorded."""
    return [json.loads(line) for line in (RUNS / name).read_text().splitlines()]


def figures() -> str:
    """A line for each run of the tests."""
    lines = []
    for row in rows("figures.jsonl"):
        differences = ", ".join(f"{value:.1g}" for value in row["difference"])
        ratios = ", ".join(f"{value:.4f}" for value in row["ratio"]) or "not logged"
        way = f"{row['trainer'].removesuffix('Trainer')}, {WAYS.get(row['way'], 'TRL as it is')}"
        lines.append(f"| {way} | `{row['family']}` | {row['weights']} | {differences} | {ratios} |\n")
    return FIGURES + "".join(lines)


def ways() -> str:
    """Which trainer was run in which way: the largest difference of log-probs, and the families."""
    runs: dict[str, dict[str, list[dict]]] = {}
    for row in rows("figures.jsonl"):
        if row["way"] in WAYS:
            trainer = f"`{row['trainer']}`" + TOOLS * row["weights"].endswith(TOOLS)
            runs.setdefault(trainer, {}).setdefault(row["way"], []).append(row)
    lines = ["| trainer | " + " | ".join(WAYS.values()) + " |\n", "|---" * (len(WAYS) + 1) + "|\n"]
    for trainer, by_way in sorted(runs.items()):
        cells = []
        for way in WAYS:
            families = {row["family"] for row in by_way.get(way, [])}
            largest = max((max(row["difference"]) for row in by_way.get(way, [])), default=0)
            cells.append(f"{largest:.0e} ({', '.join(sorted(families))})" if families else "-")
        lines.append(f"| {trainer} | {' | '.join(cells)} |\n")
    return "".join(lines)


def overhead() -> str:
    """What requests take in milliseconds, the median of all rounds, and the ratio of each round."""
    *requests, known = rows("overhead.jsonl")
    lines = []
    for row in requests:
        ratios = sorted(front / direct for front, direct in zip(row["front"], row["direct"], strict=True))
        direct, front = (statistics.median(row[way]) for way in ("direct", "front"))
        lines.append(
            f"| {row['kind']} | {direct:.1f} ms | {front:.1f} ms | {front / direct:.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}) |\n"
        )
    sent, named = (statistics.median(known[way]) for way in ("sent", "named"))
    lines.append(
        f"\nAn image that the server has is sent again, {known['bytes'] / 1e3:.0f} kB here: {sent:.1f} ms a "
        f"request. Named by a `uuid` alone, it would take {named:.1f} ms. The front does not do "
        "that: a run of AsyncGRPO with images named alone ended with vLLM. Pauses may have been the "
        "cause (see above); it was not tried again since they are mended.\n"
    )
    return OVERHEAD + "".join(lines)


def classes() -> str:
    """A line for each class that vLLM knows, those that were served first."""
    known = [row for row in rows("classes.jsonl") if row.get("failed") != "unknown to vLLM"]
    lines = []
    for row in sorted(known, key=lambda row: (max(row.get("difference", [1])) > CLOSE, row["family"])):
        said = row.get("failed")
        if said is None and max(row["difference"]) > CLOSE:
            said = f"not: log-probs differ by up to {max(row['difference']):.1g}"
        elif said is None:
            said = f"as the policy: difference {max(row['difference']):.0e}"
        else:
            said = re.sub(r"\. (Expected|The available|Give|Update).*", ".", said)
            said = f"not: `{said.replace('|', '/').replace('`', '')[:170]}`"
        lines.append(f"| `{row['family']}` | {said} |\n")
    return CLASSES + "".join(lines)


def page() -> str:
    """The text of docs/vllm.md."""
    text = PAGE.read_text()
    tables = {"figures": figures(), "ways": ways(), "overhead": overhead(), "classes": classes()}
    for name, table in tables.items():
        mark = rf"(<!-- {name}: written by `make docs` -->\n\n).*?(\n<!-- end -->)"
        text = re.sub(mark, lambda found, table=table: found[1] + table + found[2], text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
