"""GRPO on every family: rows with one image, several and none, shuffled over micro-batches."""

import math

import pytest
from trl import GRPOTrainer

from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import TWO, grpo, logs, mixture, parameters, split_by_change, square, user

pytestmark = pytest.mark.trl


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_moves_every_trainable_parameter_and_no_frozen_one(family, policy_for, tmp_path):
    policy = policy_for(family)
    trainer = grpo(policy, mixture(family), tmp_path, peft=policy.lora_config(r=4), beta=0.1)
    assert type(trainer) is GRPOTrainer
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    values = logs(trainer, "loss", "kl", "grad_norm")
    assert len(values) == 3
    assert all(math.isfinite(value) for step in values for value in step)
    kl = [step[1] for step in values]
    assert abs(kl[0]) < 1e-6
    assert kl[-1] > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_images_stay_with_their_rows_when_micro_batches_are_shuffled(family, policy_for, tmp_path):
    # The reference saw the rows before the shuffle. With nothing learned its log-probs differ from
    # the policy's only where a row got another row's images; all are of one size, so they would fit.
    rows = [
        {"prompt": user("What is it?"), "images": [square("astronaut")]},
        {"prompt": user("Compare them."), "images": [square("coffee"), square("cat")]},
        {"prompt": user("What is it?"), "images": [square("rocket")]},
    ]
    policy = policy_for(family)
    trainer = grpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), beta=0.1, learning_rate=0.0)
    trainer.train()
    assert [kl for (kl,) in logs(trainer, "kl")] == pytest.approx([0.0] * 3, abs=1e-6)


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("target", ["language+projector", "all"])
def test_lora_on_the_projector_and_the_tower_moves_too(family, target, policy_for, tmp_path):
    policy = policy_for(family)
    trainer = grpo(policy, mixture(family), tmp_path, peft=policy.lora_config(r=4, target=target))
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())


@pytest.mark.parametrize("family", TWO)
def test_a_frozen_tower_stays_while_the_decoder_trains(family, policy_for, tmp_path):
    policy = policy_for(family).freeze(vision=True, projector=True)
    trainer = grpo(policy, mixture(family), tmp_path, beta=0.0, learning_rate=1e-3)
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    assert not any(
        value.requires_grad for value in policy.get_submodule(policy.family.vision[0]).parameters()
    )


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize(
    "options",
    [
        {"beta": 0.1, "num_iterations": 2, "max_steps": 4},
        {"num_iterations": 2, "max_steps": 4},
        {"steps_per_generation": 2, "gradient_accumulation_steps": 3, "per_device_train_batch_size": 3},
        {"num_generations": 3, "per_device_train_batch_size": 3},
        {"generation_kwargs": {"top_k": 5, "repetition_penalty": 1.2}},
        {"dataloader_num_workers": 1},
    ],
    ids=lambda options: ",".join(f"{key}={value}" for key, value in options.items()),
)
def test_options_of_the_trainer_train_on_images(family, options, policy_for, tmp_path):
    policy = policy_for(family)
    options = {"learning_rate": 1e-4} | options  # small steps: no ratio is clipped
    trainer = grpo(policy, mixture(family), tmp_path, peft=policy.lora_config(r=4), **options)
    trainer.train()
    values = logs(trainer, "loss", "grad_norm")
    assert all(math.isfinite(loss) and 0 < norm < math.inf for loss, norm in values)
