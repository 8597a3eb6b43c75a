"""Value models for the tests of PPO."""

import copy
import functools
import warnings

import pytest

try:
    import trl.experimental.ppo  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_[!v]*.py", "test_v[!e]*.py"]  # all but test_versions.py


@pytest.fixture(scope="session")
def _loaded_value(checkpoint, _loaded_policy):
    from hf_vlm_rl import AutoVLMValueModel

    def load(family):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the head is new
            return AutoVLMValueModel.from_pretrained(
                checkpoint(family),
                dtype="float32",
                processing_class=_loaded_policy(family).processing_class,
            )

    return functools.cache(load)


@pytest.fixture
def value_for(_loaded_value):
    """`value_for(family)`: a fresh value model; its processing class is the policy's."""
    return lambda family: copy.deepcopy(_loaded_value(family)).eval()
