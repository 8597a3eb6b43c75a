"""A trainer that is given the policy alone: TRL loads the stock processor and passes native pixels."""

import pytest
from datasets import Dataset
from transformers import set_seed
from transformers.utils import logging
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer

from tests.trainers.runs import PLAIN, ROLLOUT, by_ids, cat, cup, said, user

pytestmark = pytest.mark.trl

FAMILIES = ("internvl", "qwen2_5_vl")


def rows() -> list[dict]:
    return [
        {"prompt": user("Describe it."), "images": [cup()]},
        {"prompt": user("And it?"), "images": [cat()]},
    ]


def measured(trainer) -> list[dict]:
    keys = ("loss", "grad_norm", "reward", "entropy", "completions/mean_length", "rewards/chosen")
    return [{key: entry[key] for key in keys if key in entry} for entry in trainer.state.log_history[:-1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_grpo_on_the_policy_alone_logs_what_the_stock_model_does(
    family, policy_for, bare_for, checkpoint, tmp_path, caplog
):
    logging.warning_once.cache_clear()
    policy = policy_for(family)
    peft, seen = policy.lora_config(r=4), []
    for model in (policy, bare_for(family)):
        set_seed(0)
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=by_ids,
            args=GRPOConfig(
                output_dir=str(tmp_path),
                **PLAIN | ROLLOUT | {"per_device_train_batch_size": 4, "steps_per_generation": 1},
                generation_kwargs={"suppress_tokens": list(policy.placeholder_ids)},
            ),
            train_dataset=Dataset.from_list(rows()),
            peft_config=peft,
        )
        trainer.train()
        seen.append(measured(trainer))
    for mine, theirs in zip(*seen, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    assert [*policy.sharing_report()["not_shared"]] == ["the images are native pixels, and no tickets"]
    assert "processing_class=policy.processing_class" in caplog.text


@pytest.mark.parametrize("family", FAMILIES)
def test_dpo_on_the_policy_alone_logs_what_the_stock_model_does(family, policy_for, bare_for, tmp_path):
    policy = policy_for(family)
    peft, seen = policy.lora_config(r=4), []
    answers = {"chosen": said("A cup of coffee."), "rejected": said("No.")}
    for model in (policy, bare_for(family)):
        set_seed(0)
        trainer = DPOTrainer(
            model=model,
            args=DPOConfig(output_dir=str(tmp_path), **PLAIN, max_steps=2, max_length=None),
            train_dataset=Dataset.from_list([row | answers for row in rows()]),
            peft_config=peft,
        )
        trainer.train()
        seen.append(measured(trainer))
    for mine, theirs in zip(*seen, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    assert policy.sharing_report()["tokens"] == 0
