"""PPO reads the scores of finished rows, too: its rows wait for each other, and the report says so."""

import pytest
import torch

from hf_vlm_rl import AutoVLMValueModel

pytest.importorskip("trl.experimental.ppo", reason="TRL 1.13 dropped PPOTrainer", exc_type=ImportError)
from tests.scoring.runs import TWO, log, ppo, rows_of

pytestmark = [pytest.mark.trl, pytest.mark.ppo]


@pytest.mark.filterwarnings("ignore::UserWarning")  # the head is new
@pytest.mark.parametrize("family", TWO)
def test_a_run_with_a_stop_token_is_the_same_with_sharing_and_without(
    family, policy_for, checkpoint, tmp_path
):
    runs = []
    for mode in (True, False):
        policy = policy_for(family)
        policy.base_model.sharing.mode = mode
        torch.manual_seed(0)
        value = AutoVLMValueModel.from_pretrained(
            checkpoint(family), dtype="float32", processing_class=policy.processing_class
        )
        # One batch: PPO draws its mini-batches from numpy's own random numbers.
        options = {"stop_token": "eos", "response_length": 6, "total_episodes": 4}
        options["peft"] = policy.lora_config(r=4)
        trainer = ppo(policy, rows_of(policy, family), value, tmp_path / str(mode), **options)
        trainer.train()
        names = ("objective/scores", "objective/entropy", "val/num_eos_tokens")
        runs.append(([log(trainer, name) for name in names], policy.sharing_report()))
    (shared, report), (plain, _) = runs
    for values, others in zip(shared, plain, strict=True):
        assert values == pytest.approx(others, abs=1e-4)
    assert report["row_steps"] == 0
    assert "return_dict_in_generate" in next(iter(report["rows_kept"]))
