"""`EvaluationCallback` in `PPOTrainer`, which trains policy and value model as one module."""

import warnings

import pytest
import torch

from hf_vlm_rl import AutoVLMValueModel
from hf_vlm_rl.evaluation import EvaluationCallback
from tests.evaluation.rows import OPTIONS, mixture, short, starts

pytest.importorskip("trl.experimental.ppo", reason="TRL 1.13 dropped PPOTrainer", exc_type=ImportError)
from tests.scoring.runs import ppo, rows_of

pytestmark = pytest.mark.trl


def test_the_policy_is_found_and_evaluated(policy_for, checkpoint, tmp_path, greedy):
    policy = policy_for("internvl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the head is new
        value = AutoVLMValueModel.from_pretrained(
            checkpoint("internvl"), dtype="float32", processing_class=policy.processing_class
        )
    evaluation = EvaluationCallback(mixture(), [short, starts], **OPTIONS)
    torch.manual_seed(0)  # of the adapter's first weights
    options = {"peft": policy.lora_config(r=4), "total_episodes": 4, "learning_rate": 0.1}
    trainer = ppo(policy, rows_of(policy, "internvl"), value, tmp_path, **options)
    evaluation.log_to(trainer)
    trainer.train()
    logged = [log for log in trainer.state.log_history if "eval/short/mean" in log]
    assert [log["step"] for log in logged] == sorted(evaluation.results)
    assert len(logged) == 2
    assert evaluation.results[0] == greedy
    assert evaluation.results[max(evaluation.results)] != greedy
