"""Rows share with TRL's own precision and gradient checkpointing, as an empty config gives them."""

import math

import pytest
import torch
from trl import DPOConfig, GRPOConfig, SFTConfig

from tests.trainers.runs import PLAIN, dpo, grpo, logs, mixture, preferences, said, sft

pytestmark = pytest.mark.trl

# Of the settings that other tests use, those that are TRL's own.
DEFAULT = ("bf16", "gradient_checkpointing")
KINDS = ("internvl", "qwen2_5_vl", "gemma3", "qwen3_5", "llava")


def test_they_are_the_defaults(tmp_path):
    for config in (GRPOConfig, DPOConfig, SFTConfig):
        args = config(output_dir=str(tmp_path), use_cpu=True)
        assert (args.bf16, args.gradient_checkpointing) == (True, True)


def train(trainer, policy):
    trainer.train()
    report = policy.sharing_report()
    assert all(math.isfinite(loss) and norm > 0 for loss, norm in logs(trainer, "loss", "grad_norm"))
    assert not any("self-check" in reason for reason in report["not_shared"]), report["not_shared"]
    return report, logs(trainer, "loss", "grad_norm")


@pytest.mark.parametrize("family", KINDS)
def test_groups_of_grpo_share(family, policy_for, tmp_path, monkeypatch):
    for name in DEFAULT:
        monkeypatch.delitem(PLAIN, name)
    policy = policy_for(family)
    policy.base_model.sharing.mode = True
    options = {"per_device_train_batch_size": 6, "num_generations": 3, "steps_per_generation": 1}
    trainer = grpo(policy, mixture(family), tmp_path, peft=policy.lora_config(r=4), **options)
    report, _ = train(trainer, policy)
    assert 0 < report["tokens_computed"] < 0.75 * report["tokens"]


@pytest.mark.parametrize("family", KINDS)
def test_pairs_of_dpo_share_and_learn_as_without(family, policy_for, tmp_path, monkeypatch):
    for name in DEFAULT:
        monkeypatch.delitem(PLAIN, name)
    steps = []
    for mode in (True, False):
        policy = policy_for(family)
        policy.base_model.sharing.mode = mode
        torch.manual_seed(0)  # of the adapter
        trainer = dpo(policy, preferences(family), tmp_path, peft=policy.lora_config(r=4), learning_rate=1e-4)
        report, values = train(trainer, policy)
        assert (report["tokens_computed"] < 0.9 * report["tokens"]) == mode
        steps.append(values)
    for shared, plain in zip(*steps, strict=True):
        assert shared == pytest.approx(plain, rel=0.05)


@pytest.mark.parametrize("family", KINDS)
def test_questions_of_sft_share_their_image(family, policy_for, tmp_path, monkeypatch):
    for name in DEFAULT:
        monkeypatch.delitem(PLAIN, name)
    policy = policy_for(family)
    policy.base_model.sharing.mode = True
    row = mixture(family)[0]
    rows = [row | {"completion": said(text)} for text in ("A woman.", "An astronaut.", "A person in orange.")]
    report, _ = train(sft(policy, rows, tmp_path, peft=policy.lora_config(r=4)), policy)
    assert 0 < report["tokens_computed"] < 0.75 * report["tokens"]
