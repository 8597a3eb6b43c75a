"""The report says what other micro-batches would compute, and they do."""

import pytest
from transformers import set_seed

from hf_vlm_rl.policy.sharing.switch import SharingSwitch
from tests.trainers.runs import cat, cup, grpo, user

pytestmark = pytest.mark.trl

ROWS = [{"prompt": user("Describe it."), "images": [cup()]}, {"prompt": user("And it?"), "images": [cat()]}]


def trained(policy, out, rows):
    """The report after two steps of eight rows, that many in each micro-batch."""
    policy.base_model.sharing.mode = True
    set_seed(0)
    sizes = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": 8 // rows}
    trainer = grpo(
        policy, ROWS, out, **sizes, steps_per_generation=8 // rows, num_generations=4, max_steps=2,
        peft=policy.lora_config(r=4), learning_rate=0.0,
    )  # fmt: skip
    trainer.train()
    return policy.sharing_report()


@pytest.mark.parametrize("family", ["internvl", "qwen2_5_vl", "gemma3"])
def test_larger_micro_batches_compute_what_smaller_ones_said(family, policy_for, tmp_path):
    said = trained(policy_for(family), tmp_path, 1)["tokens_by_batch_size"]
    assert list(said) == [1, 2, 4, 8]
    assert said[8] < 0.6 * said[1]
    for rows in (2, 4, 8):
        report = trained(policy_for(family), tmp_path, rows)
        assert report["tokens_by_batch_size"] == {size: said[size] for size in said if size >= rows}
    # The last of these ran both steps in one forward each.
    assert report["tokens_computed"] == pytest.approx(2 * said[8], rel=0.02)


def test_there_is_nothing_to_say_before_a_step():
    assert SharingSwitch().tokens_by_rows() == {}
