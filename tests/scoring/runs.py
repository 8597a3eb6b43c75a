"""Small runs of TRL's own PPOTrainer."""

from collections.abc import Iterable
from typing import Any

import torch
from datasets import Dataset
from peft import get_peft_model
from trl.experimental.ppo import PPOConfig, PPOTrainer

from hf_vlm_rl import AutoVLMValueModel, RewardFunctionModel
from tests.conformance.cases import mixture

TWO = ("internvl", "qwen2_5_vl")
# Rows of one, two and no images; a batch is all of them, in two mini-batches of two micro-batches.
PLAIN = {
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "disable_tqdm": True,
    "num_sample_generations": 0,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "num_mini_batches": 2,
    "num_ppo_epochs": 2,
    "response_length": 4,
    "total_episodes": 8,
    "learning_rate": 1e-3,
}


def by_ids(completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """A reward that differs between different completions."""
    return [sum(ids) * 2654435761 % 1000 / 1000 for ids in completion_ids]


def rows_of(policy: Any, family: str, **columns: list) -> Dataset:
    """Four encoded prompts: the family's mixture, filled up."""
    encode = policy.processing_class.encode_prompt
    prompts = (mixture(family) * 2)[:4]
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    values = values or [{}] * len(prompts)
    return Dataset.from_list([encode(prompt, **own) for prompt, own in zip(prompts, values, strict=True)])


def ppo(
    policy: Any, rows: Dataset | Iterable[dict], value_model: Any, out: Any, **options: Any
) -> PPOTrainer:
    """A trainer; `peft`, `ref_model`, `reward`, `eval_rows` and `callbacks`, the rest for `PPOConfig`."""
    reward = options.pop("reward", by_ids)
    if not isinstance(reward, torch.nn.Module):
        reward = RewardFunctionModel(reward, policy.processing_class)
    peft, ref_model = options.pop("peft", None), options.pop("ref_model", None)
    eval_rows, callbacks = options.pop("eval_rows", None), options.pop("callbacks", None)
    return PPOTrainer(
        model=policy,
        ref_model=ref_model,
        reward_model=reward,
        value_model=value_model,
        processing_class=policy.processing_class,
        train_dataset=rows if isinstance(rows, Dataset) else Dataset.from_list(list(rows)),
        eval_dataset=eval_rows,
        callbacks=callbacks,
        peft_config=peft,
        args=PPOConfig(output_dir=str(out), **PLAIN | options),
    )


def with_adapter(value_model: AutoVLMValueModel) -> Any:
    return get_peft_model(value_model, value_model.lora_config(r=4))


def log(trainer: PPOTrainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history]
