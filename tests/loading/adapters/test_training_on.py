"""What a trainer saved is loaded, answers, and is trained further; frozen parts stay as they are."""

import pytest
import torch
from safetensors.torch import load_file

from hf_vlm_rl import AutoVLMPolicy
from tests.loading.adapters.models import CAT, logits
from tests.trainers.runs import TWO, cat, dpo, grpo, mixture, parameters, preferences, split_by_change

pytestmark = pytest.mark.trl

SHORT = {"max_new_tokens": 4, "do_sample": False}


@pytest.fixture(params=TWO)
def trained(request, policy_for, tmp_path):
    """A family, its trained model and the directory a trainer saved it to."""
    policy = policy_for(request.param)
    config = policy.lora_config(r=4, modules_to_save=["projector"])
    trainer = grpo(policy, mixture(request.param), tmp_path / "run", peft=config, learning_rate=1e-3)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    return request.param, trainer.model, tmp_path / "saved"


def test_what_a_trainer_saves_is_enough(trained):
    _, model, directory = trained
    loaded = AutoVLMPolicy.from_pretrained(directory, dtype="float32")
    assert torch.equal(logits(loaded, loaded.processing_class), logits(model, loaded.processing_class))
    assert loaded.chat("What is it?", CAT, **SHORT) == model.chat("What is it?", CAT, **SHORT)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_training_goes_on_from_a_loaded_adapter(beta, trained, checkpoint, tmp_path):
    family, _, directory = trained
    model = AutoVLMPolicy.from_pretrained(directory, dtype="float32", trainable=True)
    trainer = grpo(model, mixture(family), tmp_path / "more", beta=beta)
    before = parameters(trainer.model)
    trainer.train()
    stayed, frozen_moved = split_by_change(trainer.model, before)
    assert (stayed, frozen_moved) == (set(), set())
    trainer.save_model(tmp_path / "again")
    files = [load_file(path / "adapter_model.safetensors") for path in (directory, tmp_path / "again")]
    assert set(files[0]) == set(files[1])
    assert all(not torch.equal(files[0][key], files[1][key]) for key in files[0])
    again = AutoVLMPolicy.from_pretrained(tmp_path / "again", dtype="float32")
    assert again.peft_config["default"].base_model_name_or_path == str(checkpoint(family))


def test_preferences_are_trained_on_top(trained, tmp_path):
    family, _, directory = trained
    model = AutoVLMPolicy.from_pretrained(directory, dtype="float32", trainable=True)
    trainer = dpo(model, preferences(family), tmp_path / "dpo")
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())


PARTS = {
    "decoder": {},
    "projector": {"projector": False, "language": True},
    "tower": {"vision": False, "language": True},
}


# InternVL has no use for them: the mask token of its tower's pretraining.
UNUSED = {"model.vision_tower.embeddings.mask_token"}


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("choice", PARTS.values(), ids=PARTS)
def test_grpo_trains_the_parts_that_are_not_frozen(choice, checkpointing, policy_for, tmp_path):
    policy = policy_for("internvl").freeze(**choice)
    options = {"learning_rate": 1e-3, "gradient_checkpointing": checkpointing}
    rows = mixture("internvl")
    rows[2]["images"] = [cat()]  # a batch of text alone has no gradient for a tower
    trainer = grpo(policy, rows, tmp_path, **options)
    before = parameters(policy)
    trainer.train()
    stayed, frozen_moved = split_by_change(policy, before)
    assert frozen_moved == set()
    assert stayed <= UNUSED
    assert any(weight.requires_grad for weight in policy.parameters())


def test_an_adapter_and_a_projector_are_trained_with_a_frozen_tower(policy_for, tmp_path):
    policy = policy_for("internvl")
    config = policy.lora_config(r=4, modules_to_save=["projector"])
    trainer = grpo(policy, mixture("internvl"), tmp_path, peft=config, gradient_checkpointing=True)
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
