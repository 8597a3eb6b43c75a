"""Hypothesis as a unit test, and processing classes that a test may change."""

import pytest
from hypothesis import settings

from hf_vlm_rl import AutoVLMPolicy

# The same examples every time, however slow the machine is.
settings.register_profile("unit", derandomize=True, deadline=None, database=None)
settings.load_profile("unit")


@pytest.fixture
def processing_for(checkpoint, store):
    """`processing_for(family)`: a new processing class over the test's own store."""

    def load(family, **options):
        policy = AutoVLMPolicy.from_pretrained(checkpoint(family), image_store=store, **options)
        return policy.processing_class

    return load
