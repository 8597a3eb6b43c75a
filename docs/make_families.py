"""Write docs/families.md, the support matrix, from the family table and the contract's exceptions.

Run `make docs`. A test fails when the page is not what this script writes.
"""

import html
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "families.md"

HEAD = """\
# Families

Written by `make docs` from `src/hf_vlm_rl/families/table.py` and `tests/conformance/cases.py`.
Do not edit.

A family is a `config.model_type` of transformers. "yes" means that `make test` checks it on a tiny
random model: the conformance contract on policies, and stock GRPO and DPO on TRL 1.12 and the
newest TRL.

"boxes" is how the makers' models write one, here the left half of an image of 640 x 480 pixels; "-" where
they document none. See [rewards.md](rewards.md).

| `model_type` | conformance | GRPO | DPO | image options | boxes | what is special |
|---|---|---|---|---|---|---|
"""


def boxes(family: Any) -> str:
    """How the family's models write a box that covers the left half of 640 x 480 pixels."""
    from hf_vlm_rl.families.box_coordinates import BoxCoordinates

    if family.boxes is None:
        return "-"
    text = BoxCoordinates(family.boxes).to_text([0, 0, 320, 480], (640, 480), "cat")
    # In a table, GitHub and the site disagree on how a bar inside backticks is escaped: entities it is.
    code = re.sub(r"[|_*\[\]]", lambda mark: f"&#{ord(mark[0])};", html.escape(text, quote=False))
    code = code.replace("&gt;", "&gt;<wbr>").removesuffix("<wbr>")  # a line may break after a tag
    return f"<code>{code}</code>" + (", pixels after the resize" if family.boxes.scale is None else "")


def page() -> str:
    """The text of docs/families.md."""
    sys.path.insert(0, str(ROOT))
    from hf_vlm_rl.families import FAMILIES
    from tests.conformance.cases import EXCEPTIONS

    lines = []
    for family in FAMILIES.values():
        excepted = any(family.model_type in reasons for reasons in EXCEPTIONS.values())
        options = ", ".join(f"`{option}`" for option in family.processor_options) or "-"
        conformance = "yes, but see below" if excepted else "yes"
        cells = (f"`{family.model_type}`", conformance, "yes", "yes", options, boxes(family), family.note)
        lines.append(f"| {' | '.join(cells)} |\n")
    notes = ["\n## Where the contract does not hold\n\n"]
    for clause, reasons in EXCEPTIONS.items():
        notes += [f"- {clause}: `{family}` - {reason}.\n" for family, reason in reasons.items()]
    return HEAD + "".join(lines) + "".join(notes)


if __name__ == "__main__":
    PAGE.write_text(page())
