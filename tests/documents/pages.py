"""The pages of the documentation and their code blocks."""

import re
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "SECURITY.md",
        *(ROOT / name / "README.md" for name in ("model_cards", "benchmarks", "examples")),
        ROOT / "benchmarks" / "RESULTS.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    )
}
FENCE = re.compile(r"(?:<!-- not run: (.+?) -->\n+)?^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: After the fence.
        source: The text.
        line: Of its first line, counted from 1.
        not_run: The reason that stands in a comment before it, or None.
    """

    language: str
    source: str
    line: int
    not_run: str | None


def blocks(text: str) -> list[Block]:
    """All blocks of a page, in order."""
    return [
        Block(match[2], match[3], text.count("\n", 0, match.start(3)) + 1, match[1])
        for match in FENCE.finditer(text)
    ]


def script(name: str) -> ModuleType:
    """A script of docs/, which is no package, loaded anew."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
