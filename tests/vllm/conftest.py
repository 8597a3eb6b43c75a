"""TRL's GRPO trainer with the stand-in for vLLM."""

import pytest
from trl.trainer import grpo_trainer

from hf_vlm_rl.vllm import vllm_rollout
from tests.trainers.runs import grpo
from tests.vllm.fake import FakeGeneration


@pytest.fixture
def with_vllm(monkeypatch, tmp_path):
    """`with_vllm(policy, rows, **options)`: a GRPO trainer that asks the stand-in through `vllm_rollout`."""
    monkeypatch.setattr(grpo_trainer, "VLLMGeneration", FakeGeneration)

    def trainer(policy, rows, **options):
        rollout = {"per_device_train_batch_size": 6, "steps_per_generation": 1, "rollout": vllm_rollout}
        defaults = {"use_vllm": True, "vllm_mode": "colocate", **rollout}
        return grpo(policy, rows, tmp_path, **defaults | options)

    return trainer
