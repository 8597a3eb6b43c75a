"""`hf-vlm-rl env` names the tested set of versions; the lowest set is what pyproject.toml allows."""

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hf_vlm_rl.cli import version_sets
from tests.documents.pages import ROOT

REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def pins(name):
    lines = (version_sets.CONSTRAINTS / f"{name}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.fixture
def installed(monkeypatch):
    def install(name, **others):
        found = pins("lowest") | pins(name) | others
        monkeypatch.setattr(version_sets, "requires", lambda package: REQUIRED)
        monkeypatch.setattr(version_sets, "_installed", lambda package: found.get(canonicalize_name(package)))
        return dict(version_sets.nearest_set())

    return install


def test_the_lowest_set_is_the_floors():
    required = [Requirement(line) for line in REQUIRED]
    lowest = pins("lowest")
    assert len(lowest) == len(required)
    for each in required:
        (floor,) = [bound.version for bound in each.specifier if bound.operator == ">="]
        assert Requirement(f"x=={floor}").specifier.contains(lowest[canonicalize_name(each.name)])


@pytest.mark.parametrize("path", sorted(version_sets.CONSTRAINTS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_set_is_named(path, installed):
    assert installed(path.stem) == {"versions": path.stem}


def test_what_is_not_of_a_set_and_what_does_not_fit_are_named_with_a_command(installed):
    found = installed("newest", transformers="5.19.0")
    assert found["versions"] == "no tested set; newest has transformers==5.23.0"
    assert found["does not fit"].startswith("transformers 5.19.0, needed: transformers<6,>=5.20")
    assert found["to have the set"] == "pip install transformers==5.23.0"


def test_a_build_for_a_device_is_its_release(installed):
    assert installed("newest", torch="2.15.0+cpu") == {"versions": "newest"}


def test_the_table_of_the_quickstart_is_that_of_the_sets():
    page = (ROOT / "docs/quickstart.md").read_text()
    for path in version_sets.CONSTRAINTS.glob("*.txt"):
        versions = [pins(path.stem).get(name, "-") for name in ("transformers", "trl", "torch", "vllm")]
        assert f"| `{path.stem}` | {' | '.join(versions)} |" in page
