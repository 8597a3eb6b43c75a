"""`hf-vlm-rl env` names the tested set of versions; the lowest set is what pyproject.toml allows."""

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hf_vlm_rl.cli import version_sets
from tests.documents.pages import ROOT, script

REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def pins(name):
    lines = (version_sets.CONSTRAINTS / f"{name}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.fixture
def installed(monkeypatch):
    def install(name, needs=(), **others):
        """The set's packages, this one, and `others`; of these, vLLM has the requirements `needs`."""
        found = {"hf-vlm-rl": "0"} | pins("lowest") | pins(name) | others
        asked = {"hf-vlm-rl": REQUIRED, "vllm": needs}
        monkeypatch.setattr(version_sets, "requires", asked.get)
        monkeypatch.setattr(version_sets, "installed", lambda package: found.get(canonicalize_name(package)))
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
    assert found["versions"] == "no tested set; newest has transformers==5.24.0"
    assert found["does not fit"] == "transformers 5.19.0; hf-vlm-rl needs transformers<5.25,>=5.20"
    assert found["to have the set"] == "pip install transformers==5.24.0"


def test_what_is_missing_is_named_with_a_command_in_a_set_too(installed):
    found = installed("newest", requests=None)
    assert found == {
        "versions": "newest",
        "does not fit": "requests None; hf-vlm-rl needs requests>=2.32.2",
        "to mend it": "pip install 'requests>=2.32.2'",
    }


def test_beside_vllm_a_set_with_vllm_is_named_and_what_vllm_needs(installed):
    """torch was upgraded beside vLLM, which is built for one torch: the newest set is no help then."""
    others = {"torch": "2.15.0", "torchvision": "0.29.2", "numpy": "2.4.6"}
    found = installed("vllm-0.30", needs=["torch==2.13.0", "regex; extra == 'guided'"], **others)
    assert found["versions"] == (
        "no tested set; vllm-0.30 has numpy==2.3.5 torch==2.13.0 torchvision==0.28.0"
    )
    assert found["does not fit"] == "torch 2.15.0; vllm needs torch==2.13.0"
    assert found["to have the set"] == "pip install numpy==2.3.5 torch==2.13.0 torchvision==0.28.0"


def test_a_build_for_a_device_is_its_release(installed):
    assert installed("newest", torch="2.15.0+cpu") == {"versions": "newest"}


def test_the_table_of_the_quickstart_is_what_its_script_writes():
    made = script("make_versions")
    assert all(made.facts(path).items() >= pins(path.stem).items() for path in made.SETS.glob("*.txt"))
    assert made.PAGE.read_text() == made.page(), "run `make docs`"
