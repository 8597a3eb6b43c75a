"""KTO on every family: rows with one image, several and none."""

import math

import pytest
import trl
from datasets import Dataset
from packaging.version import Version

if Version(trl.__version__) < Version("1.8"):
    pytest.skip("KTOTrainer takes no images before TRL 1.8", allow_module_level=True)

from trl import KTOConfig, KTOTrainer

from hf_vlm_rl.families.tiny import FAMILIES
from tests.trainers.runs import PLAIN, mixture, parameters, said, split_by_change

pytestmark = pytest.mark.trl


def kto(policy, family: str, out, **options) -> KTOTrainer:
    answers = [("A red cup.", True), ("Nothing.", False), ("Hello.", True)]
    rows = [
        row | {"completion": said(text), "label": label}
        for row, (text, label) in zip(mixture(family), answers, strict=True)
    ]
    peft = options.pop("peft", None)
    defaults = {"per_device_train_batch_size": 3, "max_steps": 2, "max_length": None}
    return KTOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        args=KTOConfig(output_dir=str(out), **PLAIN | defaults | options),
        train_dataset=Dataset.from_list(rows),
        peft_config=peft,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_moves_every_trainable_parameter_and_no_frozen_one(family, policy_for, tmp_path):
    policy = policy_for(family)
    trainer = kto(policy, family, tmp_path, peft=policy.lora_config(r=4))
    assert type(trainer) is KTOTrainer
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before) == (set(), set())
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == 2
    assert all(math.isfinite(entry["loss"]) for entry in logs)
