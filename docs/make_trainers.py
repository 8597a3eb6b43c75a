"""Write the tables of docs/trainers.md from tests/trainers/ways.py and options.py, which the tests keep.

Run `make docs`. A test fails when the page is not what this script writes.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "trainers.md"
sys.path.insert(0, str(ROOT))

from tests.trainers.options import MISSING, OPTIONS, Option  # noqa: E402 - found by the path above
from tests.trainers.ways import FIRST, LAST, NEWEST, ONE, TWO, WAYS  # noqa: E402

VERSIONS = {FIRST: "TRL 1.0.0", LAST: "TRL 1.12.0", NEWEST: "TRL 1.16"}
EXPERIMENTAL = "trl.experimental."


def table() -> str:
    """A line for each trainer: those of `trl`, then those of `trl.experimental`."""
    head = ["Trainer", "images come", "`processing_class`", *VERSIONS.values(), "tests"]
    lines = [head, ["---"] * len(head)]
    for name, way in sorted(WAYS.items(), key=lambda item: ("." in item[0], item[0].lower())):
        title = f"`{EXPERIMENTAL}{name}`" if "." in name else f"`{name}`"
        cells = [way.cells.get(version, "" if version == FIRST else "-") for version in VERSIONS]
        lines.append([title, way.images, way.gets, *cells, f"`{way.test}`"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(name: str, value: object) -> str:
    """A setting as it is written in Python."""
    return f'`{name}="{value}"`' if isinstance(value, str) else f"`{name}={value}`"


def equal(option: Option, version: str) -> str:
    """On how many families this version of TRL was compared; nothing of it where only the names were."""
    if option.name in MISSING.get(version, ()):
        return "-"
    return "" if version == FIRST else TWO if option.core else ONE


def options() -> str:
    """A line for each option."""
    head = ["`GRPOConfig`", "with", "changes", *VERSIONS.values()]
    lines = [head, ["---"] * len(head)]
    for option in OPTIONS:
        beside = ", ".join(code(name, value) for name, value in option.beside.items())
        cells = [equal(option, version) for version in VERSIONS]
        lines.append([code(option.name, option.value), beside, option.changes, *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """The text of docs/trainers.md."""
    text = PAGE.read_text()
    for name, lines in (("trainers", table()), ("options", options())):
        mark = rf"(<!-- {name}: written by `make docs` -->\n\n).*?(\n<!-- end -->)"
        text = re.sub(mark, lambda found, lines=lines: found[1] + lines + found[2], text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
