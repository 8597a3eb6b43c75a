"""Which TRL the suite runs on, and that it is the one that TRL's authors shipped."""

import inspect
import os
from pathlib import Path

import pytest
import trl
from trl import DPOTrainer, GRPOTrainer, RLOOTrainer, SFTTrainer

import hf_vlm_rl
from tests.trainers.runs import grpo, mixture

pytestmark = pytest.mark.trl

LANE = os.environ.get("HF_VLM_RL_TRL_LANE")


@pytest.mark.ppo
@pytest.mark.skipif(LANE is None, reason="HF_VLM_RL_TRL_LANE names no TRL version to expect")
def test_the_imported_trl_is_the_lanes():
    if LANE == "latest":
        assert ".lanes" in Path(trl.__file__).parts
    else:
        assert trl.__version__.startswith(LANE)


@pytest.mark.parametrize("trainer", [GRPOTrainer, DPOTrainer, RLOOTrainer, SFTTrainer])
def test_every_method_of_a_trainer_is_in_trls_own_files(trainer):
    assert hf_vlm_rl.AutoVLMPolicy is not None
    home = Path(trl.__file__).parent
    for name, member in inspect.getmembers(trainer, inspect.isfunction):
        code = inspect.unwrap(member).__code__
        owner = next(cls for cls in trainer.__mro__ if name in vars(cls))
        if owner is trainer:
            assert home in Path(code.co_filename).parents, name


def test_the_trainer_of_a_run_is_exactly_trls_class(policy_for, tmp_path):
    assert type(grpo(policy_for("internvl"), mixture("internvl"), tmp_path)) is GRPOTrainer
