"""The card of a PPO run, whose policy the trainer keeps beside its critic."""

import pytest
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from hf_vlm_rl.hub import save_adapter
from tests.hub.card_rules import problems
from tests.scoring.runs import ppo, rows_of, with_adapter

pytestmark = pytest.mark.ppo


def test_the_policys_adapter_is_saved_with_a_card_of_the_run(policy_for, value_for, tmp_path):
    policy, value = policy_for("internvl"), with_adapter(value_for("internvl"))
    rows = rows_of(policy, "internvl")
    trainer = ppo(policy, rows, value, tmp_path / "run", peft=policy.lora_config(r=4))
    trainer.train()
    save_adapter(trainer, tmp_path / "adapter", base_model="org/tiny")
    weights = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert all(key.startswith("base_model.model.model.language_model.") for key in weights)
    content = (tmp_path / "adapter" / "README.md").read_text()
    assert problems(content) == []
    card = ModelCard(content)
    assert "ppo" in card.data.tags
    assert "the stock `PPOTrainer`" in card.text
    assert "| `by_ids` | 1 |" in card.text
    assert f"{len(rows)} rows for training" in card.text
    assert "`objective/scores` while training" in card.text
