"""Teachers of TRL's distillation trainers: a policy is one, and a stock model that gets tickets is none."""

import pytest
from datasets import Dataset

from hf_vlm_rl import AutoVLMPolicy
from tests.trainers.homes import home
from tests.trainers.runs import PLAIN, TWO, mixture, said

pytestmark = pytest.mark.trl

STEP = PLAIN | {"max_steps": 1, "per_device_train_batch_size": 2}


def distillation(policy, family, teacher, out):
    module = home("distillation", "DistillationTrainer")
    config = module.DistillationConfig(output_dir=str(out), max_completion_length=4, **STEP)
    rows = [row | {"messages": row["prompt"] + said("A cat.")} for row in mixture(family)]
    return module.DistillationTrainer(
        model=policy,
        teacher_model=teacher,
        processing_class=policy.processing_class,
        args=config,
        train_dataset=Dataset.from_list(rows),
    )


def gold(policy, family, teacher, out):
    module = home("gold", "GOLDTrainer")
    config = module.GOLDConfig(output_dir=str(out), max_length=None, max_completion_length=4, **STEP)
    return module.GOLDTrainer(
        model=policy,
        teacher_model=teacher,
        processing_class=policy.processing_class,
        args=config,
        train_dataset=Dataset.from_list(
            [row | {"completion": said("A cat.")} for row in mixture(family)[:2]]
        ),
    )


@pytest.mark.parametrize("trainer", [distillation, gold])
@pytest.mark.parametrize("family", TWO)
def test_a_policy_is_a_teacher_and_a_stock_model_is_none(trainer, family, checkpoint, policy_for, tmp_path):
    teacher = AutoVLMPolicy.from_pretrained(checkpoint(family), dtype="float32")
    trainer(policy_for(family), family, teacher, tmp_path / "policy").train()
    stock = trainer(policy_for(family), family, str(checkpoint(family)), tmp_path / "stock")
    with pytest.raises(LookupError, match=r"teacher_model of \w+ .* reads the tickets of images as words"):
        stock.train()
