"""Which arguments ms-swift and Unsloth have: `python -m tests.documents.other_names WHEEL WHEEL`.

The wheels come from `pip download --no-deps ms-swift unsloth`. Nothing of them runs: fields of classes,
parameters and names of functions and classes are read off the source. other_names.json gets those that
docs/migrate.md names.
"""

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.documents.pages import PAGES

LIST = Path(__file__).with_suffix(".json")
SECTIONS = {"ms_swift": "From ms-swift", "unsloth": "From Unsloth"}
# Where the classes of arguments are, and what scripts call.
FOLDERS = {
    "ms_swift": r"swift/(arguments|rlhf_trainers|trainers)/",
    "unsloth": r"unsloth/(models/(loader|vision)|save|trainer|__init__)",
}
# What a cell says besides: TRL's, PEFT's, Python's and a reader's own words.
OTHERS = {"GRPOConfig", "max_prompt_length", "save_pretrained", "None", "False", "True", "import", "unsloth"}
OTHERS |= {"model", "processor"}


def named(project: str) -> set[str]:
    """The names in the first column of the project's table: of options where it has some, or all words."""
    (section,) = re.findall(
        rf"^## {SECTIONS[project]}$(.*?)(?=^## |\Z)", PAGES["docs/migrate.md"].read_text(), re.M | re.S
    )
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| ")][1:]
    code = [text for cell in cells for text in re.findall(r"`([^`]*)`", cell)]
    options = {name for text in code for name in re.findall(r"--(\w+)", text)}
    words = {name for text in code for name in re.findall(r"[A-Za-z_]\w{3,}", re.sub(r'"[^"]*"', "", text))}
    return options or words - OTHERS


def defined(tree: ast.AST) -> Iterator[str]:
    """Names of annotated fields, of functions and their parameters, of classes, of attributes set."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def read(wheel: Path) -> tuple[str, dict]:
    """Project, and its version with the file that defines each name of the page's table."""
    project, version = wheel.name.split("-")[:2]
    homes: dict[str, str] = {}
    with zipfile.ZipFile(wheel) as files:
        for name in sorted(files.namelist()):
            if name.endswith(".py") and re.match(FOLDERS[project], name):
                for each in defined(ast.parse(files.read(name))):
                    homes.setdefault(each, name)
    return project, {"version": version, "names": {n: homes.get(n) for n in sorted(named(project))}}


if __name__ == "__main__":
    LIST.write_text(json.dumps(dict(map(read, map(Path, sys.argv[1:]))), indent=1) + "\n")
