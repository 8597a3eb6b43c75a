"""The documents say what the code does."""

import ast
import re
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import hf_vlm_rl
from tests.tiny import FAMILIES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    ROOT / name
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "model_cards/README.md",
        "benchmarks/README.md",
        "examples/README.md",
    )
]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))


def test_the_support_matrix_is_what_the_table_gives():
    spec = spec_from_file_location("make_families", ROOT / "docs" / "make_families.py")
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text() == script.page(), "run `make docs`"


def test_every_family_of_the_table_is_tested():
    from hf_vlm_rl.families import FAMILIES as table

    assert set(table) == set(FAMILIES)


def python_blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_parse_and_import_what_exists(path):
    for block in python_blocks(path.read_text()):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                module = import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{node.module}.{alias.name}"


def test_every_make_target_in_the_readme_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert named
    assert named <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), target


def test_every_public_name_is_documented():
    for name in hf_vlm_rl.__all__:
        assert getattr(hf_vlm_rl, name).__doc__, name
