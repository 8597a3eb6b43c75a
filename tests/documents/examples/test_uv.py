"""The headers of the scripts (PEP 723) name all that they import, and where this package comes from.

uv would install 5 GB for each, so requirements are looked up in this environment as it would resolve them.
One script then runs by uv itself, on a tiny checkpoint: uv takes an environment as it is that has all that
the header asks for. `make sets` resolves the headers by uv.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires, version
from platform import python_version

import pytest
import uv
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from hf_vlm_rl import _install
from tests.documents.examples.conftest import SCRIPTS
from tests.documents.pages import ROOT
from tests.images import photo

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Demos of the checkout, which `uv run -m` runs: they share folders of code.
MODULES = {"grpo_zoom", "ppo_digits"}
# The pattern that PEP 723 gives.
BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


def header(text):
    (found,) = (match for match in BLOCK.finditer(text) if match["type"] == "script")
    lines = found["content"].splitlines()
    return tomllib.loads("\n".join(line[2:] for line in lines))


def named_by(requirement):
    """The requirements of a requirement: of this project by its pyproject.toml, of others as installed."""
    if requirement.name == PROJECT["name"]:
        extras = PROJECT["optional-dependencies"]
        return [*PROJECT["dependencies"], *(line for extra in requirement.extras for line in extras[extra])]
    return requires(requirement.name) or []


def resolved(requirement, seen=None):
    """Names of all distributions that a requirement brings, with each version checked."""
    seen = set() if seen is None else seen
    key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
    if key in seen:
        return seen
    if requirement.name != PROJECT["name"]:
        assert requirement.specifier.contains(version(requirement.name), prereleases=True), requirement
    seen.add(key)
    for line in named_by(requirement):
        wanted = Requirement(line)
        extras = requirement.extras or {""}
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
            resolved(wanted, seen)
    return seen


def imported(text):
    """Top-level modules that a script imports from elsewhere."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    assert all(node.level == 0 for node in froms), "a script has no neighbours when it is run from a URL"
    names |= {node.module for node in froms}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_the_header_brings_what_the_script_imports(path):
    text = path.read_text()
    if path.stem in MODULES:
        assert "# /// script" not in text
        assert f"python -m examples.{path.stem}" in text
        return
    found = header(text)
    assert found["requires-python"] == PROJECT["requires-python"]
    assert SpecifierSet(found["requires-python"]).contains(python_version())
    distributions = {name for line in found["dependencies"] for name, _ in resolved(Requirement(line))}
    homes = packages_distributions()
    for module in imported(text) - {"hf_vlm_rl"}:
        assert distributions & {canonicalize_name(home) for home in homes[module]}, module


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_the_header_installs_from_where_messages_do(path):
    """From the checkout that the script is in, until a release is on the package index."""
    if path.stem in MODULES:
        return
    sources = header(path.read_text()).get("tool", {}).get("uv", {}).get("sources", {})
    checkout = {PROJECT["name"]: {"path": "..", "editable": True}}
    assert sources == (checkout if _install.SOURCE == "." else {})


def test_a_requirement_that_is_not_met_would_be_seen():
    with pytest.raises(AssertionError, match="trl"):
        resolved(Requirement("trl<0.5"))
    assert imported("import os, nothing_here.at_all") == {"nothing_here"}


def by_uv(script, folder, *positional, **options):
    """Run a script by uv, away from the checkout as after a release, and return what it prints.

    In this environment, offline and with an empty cache: it can neither install nor change anything.
    """
    copied = shutil.copy(SCRIPTS / f"{script}.py", folder)
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [uv.find_uv_bin(), "run", "--active", "--offline", "--no-sources", copied, *positional, *given]
    own = {"VIRTUAL_ENV": sys.prefix, "UV_CACHE_DIR": str(folder / "cache"), "UV_NO_PROGRESS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_uv_runs_a_script_away_from_the_checkout(adapter_of, checkpoint, tmp_path):
    photo("cat", (112, 112)).save(tmp_path / "cat.png")
    places = {"base_model": checkpoint("internvl"), "images": "cat.png"}
    kinds = {"dtype": "float32", "device_map": "cpu", "max_new_tokens": 4}
    assert by_uv("infer_adapter", tmp_path, str(adapter_of("internvl")), **places, **kinds).strip()
