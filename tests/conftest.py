"""Fixtures shared by all tests: offline, single-threaded, tiny random checkpoints."""

import os
import tempfile

# Before transformers, datasets or hf_vlm_rl read them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_VLM_RL_CACHE"] = tempfile.mkdtemp(prefix="hf_vlm_rl-tests-")

import copy
import functools
import logging
import re
import shutil
import traceback
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import settings
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_vlm_rl import AutoVLMPolicy, ImageStore
from hf_vlm_rl.processing.images.store import default_store
from tests.lanes import (
    pytest_addoption,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_runtest_call,
    pytest_runtest_setup,
)
from tests.loading.adapters.models import write_adapter
from tests.tiny import write_checkpoint

__all__ = [
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_call",
    "pytest_runtest_setup",
]

torch.set_num_threads(1)
transformers.logging.disable_progress_bar()

# The same examples every time unless `--seed` says otherwise, however slow the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")


def pytest_sessionfinish(session, exitstatus):
    shutil.rmtree(os.environ["HF_VLM_RL_CACHE"], ignore_errors=True)


@pytest.fixture(autouse=True)
def _ranks():
    """TRL leaves the variables of a distributed run behind, and every later trainer would start one."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    before = {name: os.environ.get(name) for name in names}
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory, pytestconfig):
    """`checkpoint(family)`: the directory of that family's tiny random checkpoint."""
    base, seed = tmp_path_factory.mktemp("checkpoints"), pytestconfig.getoption("seed")

    def write(family):
        if family == "llama4" and version("transformers") == "5.24.0":
            pytest.skip("transformers 5.24.0 cannot run Llama 4: compat.require_working_class")
        return write_checkpoint(family, base / family, seed)

    return functools.cache(write)


@pytest.fixture(scope="session")
def _loaded_policy(checkpoint):
    return functools.cache(lambda family: AutoVLMPolicy.from_pretrained(checkpoint(family), dtype="float32"))


@pytest.fixture(scope="session")
def _loaded_bare(checkpoint):
    def load(family):
        return AutoModelForImageTextToText.from_pretrained(checkpoint(family), dtype=torch.float32)

    return functools.cache(load)


@pytest.fixture
def policy_for(_loaded_policy):
    """`policy_for(family)`: a fresh policy in eval mode; its processing class is shared."""
    return lambda family: copy.deepcopy(_loaded_policy(family)).eval()


@pytest.fixture
def bare_for(_loaded_bare):
    """`bare_for(family)`: a fresh stock model in eval mode with the same weights."""
    return lambda family: copy.deepcopy(_loaded_bare(family)).eval()


@pytest.fixture
def native_processor_for(checkpoint):
    """`native_processor_for(family)`: the stock processor."""
    return lambda family: AutoProcessor.from_pretrained(checkpoint(family), padding_side="left")


@pytest.fixture(scope="session")
def adapter_of(_loaded_policy, tmp_path_factory):
    """`adapter_of(family)`: directory of an adapter of the decoder, without a processor."""
    base = tmp_path_factory.mktemp("adapters")
    return functools.cache(lambda family: write_adapter(copy.deepcopy(_loaded_policy(family)), base / family))


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """A store of its own, in a temporary directory."""
    return ImageStore(tmp_path / "images")


@pytest.fixture(autouse=True)
def own_text_prompts():
    """Each test is a run of its own: the store refuses one text with two sets of columns within a run."""
    yield
    default_store().text_prompts.forget()


# Deprecated calls of stock processors among themselves: nothing that this package could do otherwise.
STOCK_CALLS = (
    "`pixel_values_images`",
    "PaddleOCRVLProcessor",
    "`torch_dtype` is deprecated",
    "Image decoding with `torchvision`",
)
# A file with the layers of one of transformers' models, or a trainer of TRL.
MODEL_CODE = re.compile(r"models[/\\](?!auto)\w+[/\\]modeling_|[/\\]trl[/\\](trainer|experimental)[/\\]")


class _Deprecations(logging.Handler):
    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        message = record.getMessage()
        # What a stock model reads of its own config is not ours to change.
        inside = any(MODEL_CODE.search(frame.filename) for frame in traceback.extract_stack())
        if "deprecat" in message.lower() and not inside and not any(call in message for call in STOCK_CALLS):
            self.messages.append(message)


@pytest.fixture(autouse=True)
def no_deprecated_calls(request):
    """Fail on deprecations that transformers logs, except where a trainer is the caller."""
    if any(request.node.get_closest_marker(name) for name in ("trl", "ppo")):
        yield
        return
    handler = _Deprecations()
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    assert not handler.messages, handler.messages
