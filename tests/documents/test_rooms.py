"""The house is as CONTRIBUTING.md says: rooms in their order, small files, packages that define nothing."""

import ast
import importlib
import re
import statistics
import subprocess
import sys
from types import ModuleType

import pytest

from tests.documents.imports import (
    TOP,
    Arrow,
    arrows,
    in_circles,
    inner_places,
    inner_room,
    modules,
    places,
    room,
    runs_up,
)
from tests.documents.pages import PAGES, ROOT

PACKAGES = [name for name in modules() if name.endswith("__init__")]
LAZY = [name for name in PACKAGES if "loaded_on_use" in ast.dump(modules()[name])]
MOST_LINES, MEDIAN_LINES = 400, 150

# Lines that a room may have. Who needs more takes something away first; what an issue adds, it adds here.
BUDGETS = {".": 34_254, "policy": 6_000, "policy/sharing": 1_502, "front": 1_322}


def test_every_room_has_a_place_in_the_order():
    assert {room(name) for name in modules()} == set(places())


def test_no_module_imports_itself_by_a_detour():
    assert [arrow.where for arrow in in_circles(arrows())] == []


def test_no_arrow_runs_up():
    assert [arrow.where for arrow in arrows() if runs_up(arrow)] == []


@pytest.mark.parametrize(
    "arrow",
    [
        Arrow("policy/policy", "loading/auto", 1),
        Arrow("plan/step", "hub/push", 1),  # of one line
        Arrow("rewards/iou", "processing/tokenizer", 1),  # below, but it knows torch
        Arrow("loading/auto", "__init__", 1),
        Arrow("errors", "compat", 1),
    ],
    ids=str,
)
def test_an_arrow_against_the_order_would_be_seen(arrow):
    assert runs_up(arrow)


def test_a_circle_would_be_seen():
    ring = [Arrow("a", "b", 1), Arrow("b", "c", 1), Arrow("c", "a", 1)]
    assert in_circles([*ring, Arrow("a", "d", 2), Arrow("e", "a", 1)]) == ring


def test_a_room_with_an_order_inside_names_all_of_it():
    ordered = {room(name) for name in inner_places()}
    inside = {
        inner_room(name) for name in modules() if room(name) in ordered and not name.endswith("/__init__")
    }
    assert inside == set(inner_places())


def test_no_arrow_runs_up_inside_a_room_with_an_order():
    heights = inner_places()
    between = [
        (arrow, inner_room(arrow.source), inner_room(arrow.target))
        for arrow in arrows()
        if {inner_room(arrow.source), inner_room(arrow.target)} <= set(heights)
    ]
    assert len(between) > 100
    assert [
        arrow.where for arrow, above, below in between if above != below and heights[above] <= heights[below]
    ] == []


@pytest.mark.parametrize(("folder", "most"), BUDGETS.items())
def test_a_room_keeps_to_its_budget(folder, most):
    lines = sum(
        len(path.read_text().splitlines()) for path in (ROOT / "src" / "hf_vlm_rl" / folder).rglob("*.py")
    )
    assert lines <= most


def test_imports_are_found_wherever_they_stand():
    """In a function, and in a branch for type checkers."""
    found = set(map(str, arrows()))
    assert {"cli/convert -> loading/internvl_chat/convert", "cli/plan -> loading/checkpoint"} <= found
    assert "__init__ -> processing/tokenizer" in found


def private_imports() -> list[str]:
    """Imports of another module's private names; `ruff` (SLF001) sees only attributes."""
    return [
        f"{name} takes {', '.join(private)} from {arrow.target}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for arrow in arrows()
        if (arrow.source, arrow.line) == (name, node.lineno)
        and (private := [each.name for each in node.names if re.match("_[^_]", each.name)])
    ]


def test_no_module_imports_private_names_of_another():
    assert private_imports() == []


def test_files_are_small():
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in python_files()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
    own = [count for name, count in lines.items() if name.startswith("src/")]
    assert statistics.median(own) < MEDIAN_LINES


def python_files() -> list[str]:
    folders = ("src", "tests", "docs", "examples", "benchmarks", "model_cards")
    return [path.relative_to(ROOT).as_posix() for name in folders for path in (ROOT / name).rglob("*.py")]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_hands_names_on_and_defines_nothing(name):
    allowed = {"__all__", *(["__version__"] if name == TOP else [])}
    docstring, *statements = modules()[name].body
    assert isinstance(docstring, ast.Expr), "a sentence says what the room is"
    for statement in statements:
        if isinstance(statement, ast.If):
            assert ast.unparse(statement.test) == "TYPE_CHECKING"
            assert all(isinstance(inner, ast.ImportFrom) for inner in statement.body)
            on_use = [ast.unparse(inner) for inner in statement.orelse]
            assert on_use == ["__getattr__, __dir__, __all__ = loaded_on_use(__name__)"]
        elif isinstance(statement, ast.Assign):
            assert {ast.unparse(target) for target in statement.targets} <= allowed
        else:
            assert isinstance(statement, ast.ImportFrom), f"line {statement.lineno}: {ast.unparse(statement)}"


def imported(name: str) -> ModuleType:
    return importlib.import_module(f"hf_vlm_rl.{name}".replace("/", ".").removesuffix(".__init__"))


@pytest.mark.parametrize("name", LAZY)
def test_a_package_finds_what_it_loads_on_first_use(name):
    package = imported(name)
    (checked,) = (node for node in modules()[name].body if isinstance(node, ast.If))
    shown_to_type_checkers = sorted(each.name for node in checked.body for each in node.names)
    assert shown_to_type_checkers == package.__all__ == dir(package)
    home = {each.name: node for node in checked.body for each in node.names}
    for each in package.__all__:
        module = importlib.import_module("." * home[each].level + home[each].module, package.__name__)
        assert getattr(package, each) is getattr(module, each)


@pytest.mark.parametrize("name", LAZY)
def test_names_of_a_package_are_handed_on_to_type_checkers(name):
    """In a typed package, `import x as x` is what makes an imported name public."""
    (checked,) = (node for node in modules()[name].body if isinstance(node, ast.If))
    assert [each.name for node in checked.body for each in node.names if each.asname != each.name] == []


def test_a_package_names_what_it_does_not_have():
    with pytest.raises(AttributeError, match=r"module 'hf_vlm_rl\.data' has no attribute 'load_coco'"):
        getattr(imported("data/__init__"), "load_" + "coco")


@pytest.mark.parametrize("name", LAZY)
def test_no_submodule_is_called_like_a_name_of_its_package(name):
    """Importing the submodule would put it in the name's place."""
    package = imported(name)
    folder = name.removesuffix("__init__")
    assert [
        each for each in package.__all__ if {f"{folder}{each}", f"{folder}{each}/__init__"} & set(modules())
    ] == []


def test_rewards_import_no_torch():
    code = "import sys, hf_vlm_rl.rewards; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_the_walk_passes_every_room_and_names_what_is_there():
    text = PAGES["CONTRIBUTING.md"].read_text()
    named = set(re.findall(r"`([\w/]+(?:/|\.py))`", text))
    assert {f"{room(name)}/" for name in PACKAGES if name != TOP} <= named
    folders = [ROOT / folder for folder in ("src", "tests", "examples", "benchmarks", "docs")]
    files = [f"/{path.relative_to(ROOT).as_posix()}" for folder in folders for path in folder.rglob("*")]
    assert {name for name in named if not any(f"/{name}" in f"{file}/" for file in files)} == set()


def test_tests_mirror_the_rooms():
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    rooms = {room(name) for name in PACKAGES} - {TOP}
    assert folders - rooms == {
        "benchmarks",
        "browser",
        "card",
        "conformance",
        "documents",
        "tiny",
        "trainers",
    }
    assert rooms - folders == set()


def test_git_ignores_nothing_of_the_repository():
    """A wheel leaves out what git ignores, even where it is committed."""
    listed = ["git", "ls-files", "--ignored", "--exclude-standard", "--cached"]
    ended = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.skip("no git checkout")
    assert ended.stdout == ""
    others = ["git", "ls-files", "--ignored", "--exclude-standard", "--others", "src", "tests"]
    unseen = subprocess.check_output(others, cwd=ROOT, text=True).splitlines()
    assert [name for name in unseen if "__pycache__" not in name] == []
