"""Gradient checkpointing, which GRPOConfig turns on by default, changes memory and nothing else."""

import math

import pytest
from transformers import set_seed

from tests.trainers.runs import TWO, dpo, flat, grpo, mixture, parameters, preferences, split_by_change

pytestmark = pytest.mark.trl

ON = [
    {"gradient_checkpointing": True},
    {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
]
NAMES = ["default", "not reentrant", "reentrant"]


def train(trainer_of, policy, rows, out, target="language", **options):
    set_seed(5)
    trainer = trainer_of(policy, rows, out, peft=policy.lora_config(r=4, target=target), **options)
    before = parameters(trainer.model)
    trainer.train()
    return trainer, before, flat(trainer, "loss", "grad_norm")


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("on", ON, ids=NAMES)
def test_grpo_gives_the_same_losses_and_gradients(on, family, policy_for, tmp_path):
    _, _, without = train(grpo, policy_for(family), mixture(family), tmp_path, beta=0.1)
    trainer, before, values = train(grpo, policy_for(family), mixture(family), tmp_path, beta=0.1, **on)
    assert trainer.model.is_activation_checkpointing
    assert values == pytest.approx(without, abs=1e-4)
    assert all(math.isfinite(value) for value in values)
    assert split_by_change(trainer.model, before) == (set(), set())


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("on", ON, ids=NAMES)
def test_dpo_gives_the_same_losses_and_gradients(on, family, policy_for, tmp_path):
    _, _, without = train(dpo, policy_for(family), preferences(family), tmp_path)
    _, _, values = train(dpo, policy_for(family), preferences(family), tmp_path, **on)
    assert values == pytest.approx(without, abs=1e-4)


@pytest.mark.parametrize("family", TWO)
@pytest.mark.parametrize("on", ON, ids=NAMES)
def test_adapters_in_the_tower_train_as_without(on, family, policy_for, tmp_path):
    rows = mixture(family)
    _, _, without = train(grpo, policy_for(family), rows, tmp_path, target="all")
    trainer, before, values = train(grpo, policy_for(family), rows, tmp_path, target="all", **on)
    assert values == pytest.approx(without, abs=1e-4)
    assert split_by_change(trainer.model, before) == (set(), set())


@pytest.mark.parametrize("family", TWO)
def test_all_weights_train_as_without(family, policy_for, tmp_path):
    seen = []
    for on in ({}, {"gradient_checkpointing": True}):
        set_seed(5)
        trainer = grpo(policy_for(family), mixture(family), tmp_path, learning_rate=1e-3, **on)
        trainer.train()
        seen.append(flat(trainer, "loss", "grad_norm"))
    assert seen[0] == pytest.approx(seen[1], abs=1e-4)
