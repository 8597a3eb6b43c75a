"""Rollouts of stock GRPO and RLOO with rows that end early: the run is what it is when all rows wait."""

import pytest
import torch

from tests.trainers.runs import TWO, grpo, logs, mixture, rloo

pytestmark = pytest.mark.trl

# So many ends of sequence that rows end at random.
ENDS = {"eos_token_id": list(range(10, 90))}


@pytest.mark.parametrize("start", [grpo, rloo])
@pytest.mark.parametrize("family", [*TWO, "gemma3"])
def test_a_run_is_the_same_whether_finished_rows_leave_or_wait(family, start, policy_for, tmp_path):
    runs = []
    for leave in (True, False):
        policy = policy_for(family)
        policy.base_model.sharing.mode = leave
        options = {"max_completion_length": 12, "generation_kwargs": dict(ENDS), "learning_rate": 1e-3}
        torch.manual_seed(0)  # of the adapter's first weights
        trainer = start(
            policy, mixture(family), tmp_path / str(leave), peft=policy.lora_config(r=4), **options
        )
        trainer.train()
        runs.append((logs(trainer, "loss", "grad_norm"), policy.sharing_report()))
    (left, saved), (waited, stock) = runs
    assert len(left) == 3
    for step, other in zip(left, waited, strict=True):
        assert step == pytest.approx(other, rel=1e-4, abs=1e-4)
    assert saved["row_steps_run"] < 0.9 * saved["row_steps"]
    assert saved["rows_kept"] == {}
    assert stock["row_steps"] == 0
