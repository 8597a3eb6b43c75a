"""What is refused by name on a transformers that cannot run it."""

import pytest
from transformers import Llama4Config, SmolVLMConfig

from hf_vlm_rl import compat


@pytest.fixture
def installed(monkeypatch):
    return lambda version: monkeypatch.setattr(compat, "version", lambda name: version)


# SmolVLM2-2.2B: 81 tokens for a tile, in pieces of 14.
LARGE = SmolVLMConfig(vision_config={"image_size": 384, "patch_size": 14}, scale_factor=3)
# SmolVLM2-256M and 500M: 64 tokens, in pieces of 16.
SMALL = SmolVLMConfig(vision_config={"image_size": 512, "patch_size": 16}, scale_factor=4)


@pytest.mark.parametrize("version", ["5.20.1", "5.20.2"])
def test_a_smolvlm_that_stock_cannot_run_is_refused(version, installed):
    installed(version)
    with pytest.raises(ImportError, match=rf"81 tokens .*transformers {version} .* multiple of 14"):
        compat.require_working_class(LARGE)


@pytest.mark.parametrize("version", ["5.20.0", "5.21.0", "5.23.0"])
def test_other_versions_run_it(version, installed):
    installed(version)
    compat.require_working_class(LARGE)


def test_one_whose_tokens_fit_the_pieces_is_run(installed):
    installed("5.20.2")
    compat.require_working_class(SMALL)


def test_a_llama4_that_stock_cannot_run_is_refused(installed):
    installed("5.24.0")
    with pytest.raises(ImportError, match=r"transformers 5\.24\.0 cannot run: its forward reads"):
        compat.require_working_class(Llama4Config())
    for version in ("5.23.0", "5.24.1", "5.25.0"):
        installed(version)
        compat.require_working_class(Llama4Config())
