"""Write the table of docs/quickstart.md from the sets of versions that are tested together.

Run `make docs`. A test fails when the page is not what this script writes.
"""

import re
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "quickstart.md"
SETS = ROOT / "src" / "hf_vlm_rl" / "constraints"
COLUMNS = {
    "set": "set",
    "transformers": "transformers",
    "trl": "TRL",
    "torch": "torch",
    "vllm": "vLLM",
    "What it is": "what it is",
    "What runs on it": "what runs on it",
}


def facts(path: Path) -> dict[str, str]:
    """The versions of a set, and what its comments say of it."""
    return dict(re.findall(r"^(?:# )?(.*?)(?:==|: )(.*)$", path.read_text(), re.MULTILINE))


def by_vllm_and_trl(found: dict[str, str]) -> list[Version]:
    """Where a set stands in the table."""
    return [Version(found.get(package, "0")) for package in ("vllm", "trl")]


def table() -> str:
    """A line for each set."""
    sets = [{"set": f"`{path.stem}`", **facts(path)} for path in SETS.glob("*.txt")]
    lines = [[*COLUMNS.values()], ["---"] * len(COLUMNS)]
    lines += [[found.get(key, "-") for key in COLUMNS] for found in sorted(sets, key=by_vllm_and_trl)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """The text of docs/quickstart.md."""
    mark = r"(<!-- sets: written by `make docs` -->\n\n).*?(\n<!-- end -->)"
    return re.sub(mark, lambda found: found[1] + table() + found[2], PAGE.read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page())
