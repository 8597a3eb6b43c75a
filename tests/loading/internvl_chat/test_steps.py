"""One step each of TRL's own trainers on the InternLM2 checkpoint, with LoRA and several tiles."""

import math

import pytest
import torch
from datasets import Dataset

from hf_vlm_rl.loading.internvl_chat.convert import convert
from tests.trainers.runs import dpo, grpo, logs, parameters, said, split_by_change
from tests.trainers.runs import user as asked

from .golden import INTERNLM2, directory, photo

pytestmark = pytest.mark.trl

ROWS = [
    {"prompt": asked("What is it?"), "images": [photo("rocket_portrait.png")]},
    {"prompt": asked("Compare them."), "images": [photo("coffee_wide.png"), photo("chelsea.png")]},
    {"prompt": asked("Say hello."), "images": []},
]


def begins_with_bos(policy, ids: torch.Tensor, mask: torch.Tensor) -> bool:
    first = mask.long().argmax(dim=1)
    return bool((ids[torch.arange(len(ids)), first] == policy.processing_class.bos_token_id).all())


@pytest.fixture
def seen(monkeypatch):
    """The rows that reach a policy's backbone."""
    rows = []

    def watch(policy):
        policy.base_model.register_forward_pre_hook(
            lambda module, args, kwargs: rows.append(
                (kwargs["input_ids"].clone(), kwargs["attention_mask"].clone())
            ),
            with_kwargs=True,
        )
        return rows

    return watch


def test_grpo(fresh, tmp_path):
    policy = fresh(INTERNLM2, 4)
    trainer = grpo(policy, ROWS, tmp_path, peft=policy.lora_config(r=4), beta=0.1, max_steps=1)
    before = parameters(trainer.model)
    trainer.train()
    # lora_A moves once lora_B, which begins at zero, has moved.
    stayed, frozen_moved = split_by_change(trainer.model, before)
    assert frozen_moved == set()
    assert all("lora_A" in name for name in stayed)
    ((loss, kl, norm),) = logs(trainer, "loss", "kl", "grad_norm")
    assert math.isfinite(loss)
    assert abs(kl) < 1e-5
    assert norm > 0


def test_dpo_sees_the_original_prompt(fresh, seen, tmp_path):
    policy = fresh(INTERNLM2, 4)
    rows = [row | {"chosen": said("Yes."), "rejected": said("No, never.")} for row in ROWS]
    watched = seen(policy)
    trainer = dpo(policy, rows, tmp_path, peft=policy.lora_config(r=4), max_steps=1)
    before = parameters(trainer.model)
    trainer.train()
    assert split_by_change(trainer.model, before)[1] == set()
    ((norm,),) = logs(trainer, "grad_norm")
    assert 0 < norm < math.inf
    # TRL tokenizes chat-template text without special tokens; the original has <s> before it.
    assert watched
    assert all(begins_with_bos(policy, ids, mask) for ids, mask in watched)


def test_ppo(fresh, tmp_path):
    ppo = pytest.importorskip("trl.experimental.ppo", reason="TRL 1.12 is the last with PPOTrainer")
    from hf_vlm_rl import AutoVLMValueModel, RewardFunctionModel

    policy = fresh(INTERNLM2, 4)
    processing = policy.processing_class
    convert(directory(INTERNLM2), tmp_path / "converted")
    with pytest.warns(UserWarning, match=r"score\.weight"):
        value = AutoVLMValueModel.from_pretrained(
            tmp_path / "converted", processing_class=processing, dtype="float32"
        )
    rows = [processing.encode_prompt(row["prompt"], row["images"]) for row in (ROWS[0], ROWS[1])]
    rows = [{"input_ids": row["input_ids"]} for row in rows]
    trainer = ppo.PPOTrainer(
        args=ppo.PPOConfig(
            output_dir=str(tmp_path / "run"),
            per_device_train_batch_size=2,
            gradient_accumulation_steps=1,
            num_mini_batches=1,
            num_ppo_epochs=1,
            total_episodes=2,
            response_length=4,
            num_sample_generations=0,
            report_to="none",
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            learning_rate=1e-2,
        ),
        processing_class=processing,
        model=policy,
        ref_model=None,
        reward_model=RewardFunctionModel(by_length, processing),
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(rows),
        value_model=value,
        peft_config=policy.lora_config(r=4),
    )
    before = parameters(trainer.model)
    trainer.train()
    after = parameters(trainer.model)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any("lora_B" in name for name in moved)
    assert not any("vision_tower" in name and name.startswith("policy") for name in moved)


def by_length(completions, **kwargs):
    return [len(completion[0]["content"]) / 10 for completion in completions]
