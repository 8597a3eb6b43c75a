"""The import graph of `src/`, and the order of rooms that CONTRIBUTING.md sets."""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.documents.pages import PAGES, ROOT, blocks

PACKAGE = ROOT / "src" / "hf_vlm_rl"
TOP = "__init__"  # the package's own


@dataclass(frozen=True)
class Arrow:
    """One import.

    Attributes:
        source: Module that imports, as a path below the package: `hub/cards/card`, `data/__init__`.
        target: Module of the package that it imports.
        line: Where, counted from 1.
    """

    source: str
    target: str
    line: int

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"

    @property
    def where(self) -> str:
        """The arrow with file and line."""
        return f"src/hf_vlm_rl/{self.source}.py:{self.line} imports {self.target}"


@dataclass(frozen=True)
class Place:
    """Where a room stands.

    Attributes:
        height: Counted from the bottom line.
        only: What the room may import, or None: whatever stands below.
    """

    height: int
    only: tuple[str, ...] | None


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    return {
        path.relative_to(PACKAGE).with_suffix("").as_posix(): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@functools.cache
def arrows() -> list[Arrow]:
    """Every import of one module of the package by another, wherever it stands.

    In a function and under TYPE_CHECKING, where a package names what it loads on first use, too: all of
    them say what a module has to know.
    """
    return sorted(
        {
            Arrow(source, target, line)
            for source, tree in modules().items()
            for target, line in _imports(source, tree)
        },
        key=lambda arrow: (arrow.source, arrow.line, arrow.target),
    )


def _imports(source: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == PACKAGE.name:
                    yield _module(name.name.split(".")[1:]), node.lineno
        elif isinstance(node, ast.ImportFrom) and (home := _home(source, node)) is not None:
            for name in node.names:
                yield _module([*home, name.name]), node.lineno


def _home(source: str, node: ast.ImportFrom) -> list[str] | None:
    """Below the package, where a `from` statement takes names from; None if elsewhere."""
    names = (node.module or "").split(".") if node.module else []
    if node.level:
        return [*source.split("/")[: -node.level], *names]
    return names[1:] if names[0] == PACKAGE.name else None


def _module(names: list[str]) -> str:
    """The module that dotted names lead to; the last of them may be a name inside it."""
    while True:
        for path in ("/".join(names), "/".join([*names, "__init__"])):
            if path in modules():
                return path
        names = names[:-1]


def in_circles(graph: list[Arrow]) -> list[Arrow]:
    """The arrows from whose target some way leads back to their source."""
    targets: dict[str, set[str]] = {}
    for arrow in graph:
        targets.setdefault(arrow.source, set()).add(arrow.target)

    @functools.cache
    def reached(start: str) -> set[str]:
        seen, waiting = {start}, [start]
        while waiting:
            ahead = targets.get(waiting.pop(), set()) - seen
            seen |= ahead
            waiting += ahead
        return seen

    return [arrow for arrow in graph if arrow.source in reached(arrow.target)]


@functools.cache
def places() -> dict[str, Place]:
    """Room -> its place in the one block of CONTRIBUTING.md that begins with `__init__`."""
    (order,) = (
        block.source
        for block in blocks(Path(PAGES["CONTRIBUTING.md"]).read_text())
        if block.source.startswith(TOP)
    )
    rooms = {}
    for height, line in enumerate(reversed(order.splitlines())):
        names, *note = re.split(r"\s{2,}", line, maxsplit=1)
        only = [text.removeprefix("only: ") for text in note if text.startswith("only: ")]
        for name in names.split(", "):
            rooms[name] = Place(height, tuple(only[0].split(", ")) if only else None)
    return rooms


@functools.cache
def inner_places() -> dict[str, int]:
    """Folder or file inside a room (`policy/sharing`) -> its height, of the blocks that name such ones."""
    heights = {}
    for block in blocks(Path(PAGES["CONTRIBUTING.md"]).read_text()):
        lines = block.source.splitlines()
        if re.match(r"\w+/\w+(, |\n)", block.source):
            for height, line in enumerate(reversed(lines)):
                heights |= dict.fromkeys(line.split(", "), height)
    return heights


def inner_room(module: str) -> str:
    """The folder inside a room, or the file that stands beside these, that a module belongs to."""
    return "/".join(module.split("/")[:2])


def room(module: str) -> str:
    """The room, or the file that stands beside them, that a module belongs to."""
    return module.split("/")[0]


def runs_up(arrow: Arrow) -> bool:
    """Does an arrow leave its room for one that is not below, or for one that the room may not know?"""
    above, below = places()[room(arrow.source)], places()[room(arrow.target)]
    if room(arrow.source) == room(arrow.target):
        return False
    if above.only is not None:
        return not any(f"{arrow.target}/".startswith(f"{name}/") for name in above.only)
    return below.height >= above.height
