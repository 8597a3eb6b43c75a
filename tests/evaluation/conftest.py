"""A tiny policy, rows with and without images, and what they answer."""

import copy

import pytest

from hf_vlm_rl.evaluation import evaluate
from tests.evaluation.rows import OPTIONS, mixture, short, starts


@pytest.fixture(scope="session")
def shared_policy(_loaded_policy):
    """A policy that no test changes."""
    return copy.deepcopy(_loaded_policy("internvl")).eval()


@pytest.fixture(scope="session")
def greedy(shared_policy):
    """The mixture, evaluated greedily."""
    return evaluate(shared_policy, mixture(), [short, starts], **OPTIONS)


@pytest.fixture(scope="session")
def sampled(shared_policy):
    """The mixture, four completions each."""
    return evaluate(shared_policy, mixture(), [short, starts], num_generations=4, **OPTIONS)
