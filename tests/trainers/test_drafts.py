"""Rollouts of stock GRPO with drafts of earlier epochs: the run is what it is without them."""

import pytest
import torch

from tests.trainers.runs import TWO, grpo, logs, mixture

pytestmark = pytest.mark.trl


@pytest.mark.parametrize("family", TWO)
def test_a_run_of_several_epochs_is_the_same_with_and_without_drafts(family, policy_for, tmp_path):
    runs = []
    for speculation in (False, True):
        policy = policy_for(family)
        policy.base_model.rollouts.speculation = speculation
        # Nearly greedy, so that the untrained model repeats itself.
        options = {"max_completion_length": 16, "temperature": 0.05, "learning_rate": 1e-5, "max_steps": 9}
        torch.manual_seed(0)  # of the adapter's first weights
        peft = policy.lora_config(r=4)
        trainer = grpo(policy, mixture(family), tmp_path / str(speculation), peft=peft, **options)
        trainer.train()
        runs.append((logs(trainer, "loss", "grad_norm"), policy.sharing_report(), trainer.state.epoch))
    (plain, none, _), (drafted, report, epochs) = runs
    assert epochs >= 2
    for step, other in zip(drafted, plain, strict=True):
        assert step == pytest.approx(other, rel=1e-4, abs=1e-4)
    assert none["drafts"] == 0
    assert report["not_speculated"] == {}
    assert report["drafts_accepted"] > 20
    assert report["forwards_saved"] > 0
