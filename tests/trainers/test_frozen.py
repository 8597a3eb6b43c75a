"""A policy without a weight to train is refused at the first batch of a stock trainer, with its defaults."""

import pytest
from peft import get_peft_model

from .runs import dpo, grpo, mixture, preferences, said, sft

pytestmark = pytest.mark.trl


def answers(family: str) -> list[dict]:
    return [row | {"completion": said("Yes.")} for row in mixture(family)]


@pytest.mark.parametrize("frozen", ["frozen", "merged"])
@pytest.mark.parametrize(("make", "rows"), [(grpo, mixture), (dpo, preferences), (sft, answers)])
def test_it_is_refused_before_a_step(make, rows, frozen, policy_for, tmp_path):
    policy = policy_for("internvl")
    if frozen == "merged":
        policy = get_peft_model(policy, policy.lora_config(r=2)).merge_and_unload()
    policy.requires_grad_(False)
    # By itself DPO takes a stock model as its reference, and is refused for that.
    options = {"ref_model": policy_for("internvl")} if make is dpo else {}
    trainer = make(policy, rows("internvl"), tmp_path, gradient_checkpointing=True, **options)
    with pytest.raises(ValueError, match="none of its weights requires a gradient"):
        trainer.train()
    assert trainer.state.global_step == 0
