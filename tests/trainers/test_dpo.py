"""DPO on every family: rows with one image, several and none, with adapters as the policy."""

import math

import pytest
import torch

from hf_vlm_rl import ImageError
from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import (
    TEXT_TOO,
    TWO,
    cup,
    dpo,
    logs,
    parameters,
    preferences,
    said,
    split_by_change,
    user,
    woman,
)

pytestmark = pytest.mark.trl


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_learns_from_a_loss_of_log_two(family, policy_for, tmp_path):
    policy = policy_for(family)
    # Workers make the tickets that this process resolves.
    workers = 2 if family in TWO else 0
    trainer = dpo(
        policy, preferences(family), tmp_path, peft=policy.lora_config(r=4), dataloader_num_workers=workers
    )
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    (loss, margin, _), (later_loss, later_margin, norm) = logs(
        trainer, "loss", "rewards/margins", "grad_norm"
    )
    assert loss == pytest.approx(math.log(2), abs=1e-5)
    assert margin == pytest.approx(0.0, abs=1e-5)
    assert later_margin > 1e-3
    assert later_loss < loss
    assert math.isfinite(norm)


@pytest.mark.parametrize("family", TWO)
def test_an_image_column_reads_as_a_list_of_one(family, policy_for, tmp_path):
    seen = []
    for column in ({"image": woman()}, {"images": [woman()]}):
        policy = policy_for(family)
        row = {"prompt": user("What is it?"), "chosen": said("A woman."), "rejected": said("A cup.")}
        torch.manual_seed(0)  # of the adapter
        trainer = dpo(policy, [row | column] * 3, tmp_path, peft=policy.lora_config(r=4))
        trainer.train()
        seen.append(logs(trainer, "loss", "logps/chosen"))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("family", TWO)
def test_other_images_give_other_log_probs(family, policy_for, tmp_path):
    chosen = []
    for image in (woman(), cup().resize((112, 112))):
        policy = policy_for(family)
        row = {"prompt": user("What is it?"), "images": [image]}
        answers = {"chosen": said("A woman."), "rejected": said("A cup.")}
        trainer = dpo(policy, [row | answers] * 3, tmp_path, peft=policy.lora_config(r=4), max_steps=1)
        trainer.train()
        chosen.append(logs(trainer, "logps/chosen")[0][0])
    assert abs(chosen[0] - chosen[1]) > 1e-3


@pytest.mark.parametrize("family", TWO)
def test_a_length_limit_that_cuts_an_image_raises(family, policy_for, tmp_path):
    policy = policy_for(family)
    trainer = dpo(policy, preferences(family), tmp_path, peft=policy.lora_config(r=4), max_length=12)
    with pytest.raises(ImageError, match="max_length=None"):
        trainer.train()


@pytest.mark.parametrize("family", TWO)
def test_the_default_length_limit_leaves_small_images_alone(family, policy_for, tmp_path):
    policy = policy_for(family)
    trainer = dpo(policy, preferences(family), tmp_path, peft=policy.lora_config(r=4), max_length=1024)
    trainer.train()
    assert logs(trainer, "loss")[0][0] == pytest.approx(math.log(2), abs=1e-5)


@pytest.mark.parametrize("family", TEXT_TOO)
def test_rows_of_text_alone_train(family, policy_for, tmp_path):
    policy = policy_for(family)
    rows = [
        {"prompt": user("Say hello."), "chosen": said("Hello."), "rejected": said("No.")},
        {"prompt": user("What is 1 + 2?"), "chosen": said("It is 3."), "rejected": said("It is 4.")},
    ] * 2
    trainer = dpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), per_device_train_batch_size=2)
    trainer.train()
    (loss, _), (_, margin) = logs(trainer, "loss", "rewards/margins")
    assert loss == pytest.approx(math.log(2), abs=1e-5)
    assert margin != 0.0
