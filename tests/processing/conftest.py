"""Processing classes that a test may change."""

import pytest

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.families.tiny import FAMILIES


@pytest.fixture
def processing_for(checkpoint, store):
    """`processing_for(family)`: a new processing class over the test's own store."""

    def load(family, **options):
        policy = AutoVLMPolicy.from_pretrained(checkpoint(family), image_store=store, **options)
        return policy.processing_class

    return load


@pytest.fixture(params=FAMILIES)
def family(request):
    """Every family in turn."""
    return request.param


@pytest.fixture
def processing(processing_for, family):
    """A new processing class of each family."""
    return processing_for(family)
