"""The family table: rows, registration and third parties' entry points."""

import dataclasses
import os
import pickle
import subprocess
import sys
import textwrap

import pytest

from hf_vlm_rl import AutoVLMPolicy, VLMFamily, register_family
from hf_vlm_rl.families import FAMILIES, tiny
from hf_vlm_rl.families.registry import family_for, is_built_in

NEW = VLMFamily("my_vlm", vision=("model.eyes",))


@pytest.fixture(autouse=True)
def table():
    """What a test registers is gone after it."""
    before = dict(FAMILIES)
    yield FAMILIES
    FAMILIES.clear()
    FAMILIES.update(before)


def test_there_is_a_row_for_every_family_that_is_tested():
    assert set(FAMILIES) == set(tiny.FAMILIES)
    assert all(FAMILIES[model_type].model_type == model_type for model_type in FAMILIES)


@pytest.mark.parametrize("model_type", tiny.FAMILIES)
def test_a_row_is_frozen_picklable_and_has_a_note(model_type):
    row = FAMILIES[model_type]
    assert pickle.loads(pickle.dumps(row)) == row
    assert row.note.endswith(".")
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.vision = ("other",)


@pytest.mark.parametrize("model_type", tiny.FAMILIES)
def test_the_module_paths_of_a_row_exist(policy_for, model_type):
    policy = policy_for(model_type)
    for path in (*policy.family.vision, *policy.family.projector, policy.family.language):
        assert next(policy.get_submodule(path).parameters(), None) is not None


@pytest.mark.parametrize("register", [register_family, AutoVLMPolicy.register_family])
def test_a_registered_row_is_found(register):
    assert family_for("my_vlm") == VLMFamily("my_vlm")
    register(NEW)
    assert family_for("my_vlm") is NEW


def test_a_known_row_is_replaced_only_on_request():
    register_family(NEW)
    other = dataclasses.replace(NEW, vision=("model.ears",))
    with pytest.raises(ValueError, match=r"'my_vlm' is registered already. Pass exist_ok=True"):
        register_family(other)
    assert FAMILIES["my_vlm"] is NEW
    register_family(other, exist_ok=True)
    assert FAMILIES["my_vlm"] is other


@pytest.mark.parametrize("row", ["my_vlm", None, {"model_type": "my_vlm"}, VLMFamily])
def test_what_is_no_row_is_a_type_error(row):
    with pytest.raises(TypeError, match=rf"Got a {type(row).__name__}, expected a hf_vlm_rl.VLMFamily"):
        register_family(row)


def test_only_unchanged_rows_of_this_package_count_as_tested():
    assert is_built_in("internvl")
    register_family(VLMFamily("internvl", needs_image=True), exist_ok=True)
    assert not is_built_in("internvl")
    register_family(NEW)
    assert not is_built_in("my_vlm")


def test_rows_of_installed_packages_are_found_by_their_entry_points(tmp_path):
    (tmp_path / "their_package.py").write_text(
        "from hf_vlm_rl import VLMFamily\n"
        "ROW = VLMFamily('one_row', note='Alone.')\n"
        "ROWS = [VLMFamily('first'), VLMFamily('second', vision=('model.eyes',))]\n"
    )
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[hf_vlm_rl.families]\nrow = their_package:ROW\nrows = their_package:ROWS\n"
    )
    code = textwrap.dedent(
        """
        import sys
        from hf_vlm_rl.families import family_for
        assert "their_package" not in sys.modules
        assert family_for("internvl").counts_by_size
        assert "their_package" not in sys.modules, "known families must not load plugins"
        print(family_for("one_row").note, *family_for("second").vision)
        print(family_for("first").vision)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Alone.", "model.eyes", "None"]
