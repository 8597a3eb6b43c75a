"""The family table: rows and their registration."""

import dataclasses
import pickle

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
def test_a_row_is_frozen_picklable(model_type):
    row = FAMILIES[model_type]
    assert pickle.loads(pickle.dumps(row)) == row
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
