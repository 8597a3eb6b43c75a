"""A random adapter of each family, written once."""

import copy
import functools

import pytest
from transformers import InternVLConfig

from hf_vlm_rl import AutoVLMPolicy
from tests.tiny import recipe

from .models import write_adapter


@pytest.fixture(scope="session")
def adapter_of(_loaded_policy, tmp_path_factory):
    """`adapter_of(family)`: directory of an adapter of the decoder, without a processor."""
    base = tmp_path_factory.mktemp("adapters")
    return functools.cache(lambda family: write_adapter(copy.deepcopy(_loaded_policy(family)), base / family))


@pytest.fixture
def mixture_of_experts():
    """A random InternVL whose decoder has four experts."""
    made = recipe("internvl")
    text = made.config.text_config.to_dict() | {
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "head_dim": 16,
    }
    config = made.config.to_dict() | {"text_config": text}
    return AutoVLMPolicy.from_config(InternVLConfig.from_dict(config), made.processor)
