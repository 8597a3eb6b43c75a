"""Write the table of docs/trainers.md from tests/trainers/ways.py, which the tests of the trainers keep.

Run `make docs`. A test fails when the page is not what this script writes.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "trainers.md"
sys.path.insert(0, str(ROOT))

from tests.trainers.ways import FIRST, LAST, NEWEST, WAYS  # noqa: E402 - found by the path above

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


def page() -> str:
    """The text of docs/trainers.md."""
    mark = r"(<!-- trainers: written by `make docs` -->\n\n).*?(\n<!-- end -->)"
    return re.sub(mark, lambda found: found[1] + table() + found[2], PAGE.read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page())
