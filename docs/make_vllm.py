"""Write the tables of docs/vllm.md from what runs with a real vLLM recorded.

    rm tests/vllm/engine/*.jsonl
    HF_VLM_RL_VLLM_FIGURES=tests/vllm/engine/figures.jsonl make test-vllm
    PYTHONPATH=.:tests/vllm/engine/start .lanes/vllm/bin/python -m tests.vllm.engine.every_class \
        tests/vllm/engine/classes.jsonl
    make docs

A test fails when the page is not what this script writes.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "vllm.md"
RUNS = ROOT / "tests" / "vllm" / "engine"
FIGURES = """\
| model | weights | largest difference of log-probs, each step | mean importance ratio, each step |
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
        ratios = ", ".join(f"{value:.4f}" for value in row["ratio"])
        lines.append(f"| `{row['family']}` | {row['weights']} | {differences} | {ratios} |\n")
    return FIGURES + "".join(lines)


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
    for name, table in {"figures": figures(), "classes": classes()}.items():
        mark = rf"(<!-- {name}: written by `make docs` -->\n\n).*?(\n<!-- end -->)"
        text = re.sub(mark, lambda found, table=table: found[1] + table + found[2], text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
