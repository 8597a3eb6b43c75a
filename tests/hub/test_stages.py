"""A card says of a training what happened: nothing where nothing was trained, and all of several in a row."""

import logging

import pytest
import torch
from peft import LoraConfig, get_peft_model

from hf_vlm_rl import AutoVLMPolicy, CheckpointError
from hf_vlm_rl.hub import save_adapter
from hf_vlm_rl.hub.cards.stored import stored
from tests.trainers.runs import dpo, grpo, mixture, preferences

pytestmark = pytest.mark.trl


@pytest.fixture
def config(policy_for):
    return policy_for("internvl").lora_config(r=4, init_lora_weights=False)


@pytest.fixture
def trained(policy_for, config, tmp_path):
    """A GRPOTrainer after two steps, with its adapter in the folder "grpo"."""
    trainer = grpo(policy_for("internvl"), mixture("internvl"), tmp_path / "first", peft=config, max_steps=2)
    trainer.train()
    save_adapter(trainer, tmp_path / "grpo")
    return trainer


@pytest.fixture
def first(trained, tmp_path):
    """The folder of an adapter after two steps of GRPO."""
    return tmp_path / "grpo"


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_loaded_adapter_that_is_not_trainable_trains_nothing_and_gets_no_card(
    first, checkpointing, tmp_path
):
    model = AutoVLMPolicy.from_pretrained(first, dtype="float32")
    options = {"gradient_checkpointing": checkpointing}
    trainer = grpo(model, mixture("internvl"), tmp_path / "second", **options)
    with pytest.raises(ValueError, match=r"none of its weights requires a gradient.*trainable=True"):
        trainer.train()
    with pytest.raises(ValueError, match="no trainable weights: it has trained nothing"):
        save_adapter(trainer, tmp_path / "card")
    assert not (tmp_path / "card").exists()


def test_a_merged_policy_without_trainable_weights_is_refused_too(first):
    policy = AutoVLMPolicy.from_pretrained(first, dtype="float32", merge=True)
    batch = policy.processing_class(text=["Hello"], return_tensors="pt")
    with torch.no_grad():
        policy.train()(**batch)
    policy.eval()(**batch)
    with pytest.raises(ValueError, match="none of its weights requires a gradient"):
        policy.train()(**batch)
    policy.requires_grad_(True)(**batch)


def test_trainings_of_one_adapter_add_up(first, tmp_path):
    model = AutoVLMPolicy.from_pretrained(first, dtype="float32", trainable=True)
    trainer = dpo(model, preferences("internvl"), tmp_path / "second", max_steps=1)
    trainer.train()
    for _ in range(2):  # saving again is no further training
        save_adapter(trainer, tmp_path / "dpo")
    card = (tmp_path / "dpo" / "README.md").read_text()
    assert "with the stock `DPOTrainer`" in card
    assert "Before that, the same adapter was trained by `GRPOTrainer` (2 steps)." in card
    assert "- grpo\n- dpo\n" in card
    assert [stage.method for stage in stored(tmp_path / "dpo").facts.stages] == ["grpo"]
    third = AutoVLMPolicy.from_pretrained(tmp_path / "dpo", dtype="float32", trainable=True)
    save_adapter(third, tmp_path / "third")
    card = (tmp_path / "third" / "README.md").read_text()
    assert "was trained by `GRPOTrainer` (2 steps), then by `DPOTrainer` (1 steps)." in card


def test_trainings_in_one_process_add_up_as_well(trained, config, policy_for, tmp_path):
    second = dpo(trained.model, preferences("internvl"), tmp_path / "second", max_steps=1)
    second.train()
    for _ in range(2):
        save_adapter(second, tmp_path / "dpo")
    save_adapter(second.model, tmp_path / "model")
    assert "Before that, the same" not in (tmp_path / "grpo" / "README.md").read_text()
    said = "Before that, the same adapter was trained by `GRPOTrainer` (2 steps)."
    assert said in (tmp_path / "dpo" / "README.md").read_text()
    both = "trained by `GRPOTrainer` (2 steps), then by `DPOTrainer` (1 steps)."
    assert both in (tmp_path / "model" / "README.md").read_text()
    save_adapter(trained, tmp_path / "again")
    save_adapter(second.model, tmp_path / "model")
    assert both in (tmp_path / "model" / "README.md").read_text()
    # PEFT keeps the caller's config, which may serve another adapter.
    fresh = dpo(policy_for("internvl"), preferences("internvl"), tmp_path / "third", peft=config, max_steps=1)
    fresh.train()
    save_adapter(fresh, tmp_path / "fresh")
    assert "the same adapter was trained" not in (tmp_path / "fresh" / "README.md").read_text()


def test_of_two_active_adapters_none_is_lost_in_silence(policy_for, tmp_path):
    policy = policy_for("internvl")
    model = get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False))
    model.add_adapter("second", policy.lora_config(r=4, init_lora_weights=False))
    model.base_model.set_adapter(["default", "second"])
    with pytest.raises(ValueError, match=r"active adapters \['default', 'second'\]\. Expected one"):
        save_adapter(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    model.set_adapter("second")
    save_adapter(model, tmp_path / "saved")
    AutoVLMPolicy.from_pretrained(tmp_path / "saved", dtype="float32")


def test_a_training_that_nobody_wrote_down_is_said(policy_for, tmp_path):
    policy = policy_for("internvl")
    torch.manual_seed(0)
    get_peft_model(policy, policy.lora_config(r=4, init_lora_weights=False)).save_pretrained(
        tmp_path / "plain"
    )
    model = AutoVLMPolicy.from_pretrained(tmp_path / "plain", dtype="float32", trainable=True)
    save_adapter(model, tmp_path / "saved")
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "Before, the same adapter was trained in a way that nobody wrote down." in card


def test_an_adapter_that_changes_nothing_is_said_when_it_is_saved(policy_for, tmp_path, caplog):
    policy = policy_for("internvl")
    config = policy.lora_config(r=4)
    trainer = grpo(policy, mixture("internvl"), tmp_path / "run", peft=config, max_steps=1, learning_rate=0.0)
    trainer.train()
    logging.getLogger("hf_vlm_rl").propagate = True
    with caplog.at_level(logging.WARNING):
        save_adapter(trainer, tmp_path / "saved")
    assert "changes nothing: every B of it is zero" in caplog.text
    with pytest.raises(CheckpointError, match="changes nothing"):
        AutoVLMPolicy.from_pretrained(tmp_path / "saved")


def test_a_config_of_ones_own_gets_the_bases_weights_when_saved(policy_for, tmp_path):
    policy = policy_for("internvl")
    config = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    torch.manual_seed(0)
    save_adapter(get_peft_model(policy, config), tmp_path / "saved")
    AutoVLMPolicy.from_pretrained(tmp_path / "saved", dtype="float32")
    other = AutoVLMPolicy.from_pretrained(policy.name_or_path, dtype="float32")
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(1e-3)
    other.save_pretrained(tmp_path / "other")
    other.processing_class.save_pretrained(tmp_path / "other")
    with pytest.raises(CheckpointError, match="trained on other weights"):
        AutoVLMPolicy.from_pretrained(tmp_path / "saved", base_model=tmp_path / "other")
