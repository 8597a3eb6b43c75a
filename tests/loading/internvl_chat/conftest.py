"""Policies loaded from the golden checkpoints."""

import copy
import functools

import pytest

from hf_vlm_rl import AutoVLMPolicy

from .golden import directory


@pytest.fixture(scope="session")
def _loaded():
    def load(checkpoint, max_tiles):
        policy = AutoVLMPolicy.from_pretrained(directory(checkpoint), dtype="float32", max_tiles=max_tiles)
        return policy.eval()

    return functools.cache(load)


@pytest.fixture
def original(_loaded):
    """`original(checkpoint, max_tiles=12)`: the policy; shared, so leave it as it is."""
    return lambda checkpoint, max_tiles=12: _loaded(checkpoint, max_tiles)


@pytest.fixture
def fresh(_loaded):
    """`fresh(checkpoint, max_tiles=12)`: a policy of its own, to change."""
    return lambda checkpoint, max_tiles=12: copy.deepcopy(_loaded(checkpoint, max_tiles))
