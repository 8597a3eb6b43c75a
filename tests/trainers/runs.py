"""Small runs of TRL's own trainers: rows, configurations and what a run left behind."""

from collections.abc import Iterable
from typing import Any

import torch
from datasets import Dataset
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    RLOOConfig,
    RLOOTrainer,
    SFTConfig,
    SFTTrainer,
)

from hf_vlm_rl.families.tiny import FAMILIES
from tests.conformance.cases import EXCEPTIONS
from tests.images import photo

# Families whose native processor refuses rows without an image.
IMAGE_NEEDED = tuple(EXCEPTIONS["rows without images"])
TEXT_TOO = tuple(family for family in FAMILIES if family not in IMAGE_NEEDED)
TWO = ("internvl", "qwen2_5_vl")

PLAIN = {
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "disable_tqdm": True,
    "logging_steps": 1,
    "gradient_checkpointing": False,
    "learning_rate": 1e-2,
}
# Three prompts, twice each, shuffled over three micro-batches of two rows.
ROLLOUT = {
    "per_device_train_batch_size": 2,
    "steps_per_generation": 3,
    "gradient_accumulation_steps": 1,
    "num_generations": 2,
    "max_completion_length": 5,
    "max_steps": 3,
}


def woman():
    return square("astronaut")


def cup():
    return photo("coffee", (160, 64))


def cat():
    return photo("cat", (96, 96))


def square(name: str):
    return photo(name, (112, 112))


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def said(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def mixture(family: str) -> list[dict]:
    """Rows with one image, two images and none; where every row needs one, with one."""
    last = [cat()] if family in IMAGE_NEEDED else []
    return [
        {"prompt": user("What is it?"), "images": [woman()]},
        {"prompt": user("Compare them."), "images": [cup(), cat()]},
        {"prompt": user("Say hello to the user."), "images": last},
    ]


def preferences(family: str) -> list[dict]:
    answers = [("A woman.", "A cup of dogs."), ("Cup and cat.", "Nothing."), ("Hello.", "No, it is not.")]
    return [
        row | {"chosen": said(good), "rejected": said(bad)}
        for row, (good, bad) in zip(mixture(family), answers, strict=True)
    ]


def by_ids(completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """A reward that differs between different completions."""
    return [sum(ids) * 2654435761 % 1000 / 1000 for ids in completion_ids]


def grpo(policy: Any, rows: Iterable[dict], out: Any, **options: Any) -> GRPOTrainer:
    return _online(GRPOTrainer, GRPOConfig, policy, rows, out, options)


def rloo(policy: Any, rows: Iterable[dict], out: Any, **options: Any) -> RLOOTrainer:
    return _online(RLOOTrainer, RLOOConfig, policy, rows, out, options)


def _online(trainer: type, config: type, policy: Any, rows: Iterable[dict], out: Any, options: dict) -> Any:
    peft = options.pop("peft", None)
    reward = options.pop("reward", by_ids)
    processing_class = options.pop("processing_class", None) or policy.processing_class
    eval_rows = options.pop("eval_rows", None)
    own = {"rollout_func": options.pop("rollout")} if "rollout" in options else {}
    if "environment_factory" in options:
        own["environment_factory"] = options.pop("environment_factory")
    return trainer(
        model=policy,
        processing_class=processing_class,
        reward_funcs=reward,
        args=config(output_dir=str(out), **PLAIN | ROLLOUT | options),
        train_dataset=Dataset.from_list(list(rows)),
        eval_dataset=None if eval_rows is None else Dataset.from_list(eval_rows),
        peft_config=peft,
        **own,
    )


def dpo(policy: Any, rows: Iterable[dict], out: Any, **options: Any) -> DPOTrainer:
    peft, ref_model = options.pop("peft", None), options.pop("ref_model", None)
    processing_class = options.pop("processing_class", None) or policy.processing_class
    defaults = {"per_device_train_batch_size": 3, "max_steps": 2, "max_length": None}
    return DPOTrainer(
        model=policy,
        ref_model=ref_model,
        processing_class=processing_class,
        args=DPOConfig(output_dir=str(out), **PLAIN | defaults | options),
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=peft,
    )


def sft(policy: Any, rows: Iterable[dict], out: Any, **options: Any) -> SFTTrainer:
    peft = options.pop("peft", None)
    processing_class = options.pop("processing_class", None) or policy.processing_class
    defaults = {"per_device_train_batch_size": 3, "max_steps": 2, "max_length": None}
    return SFTTrainer(
        model=policy,
        processing_class=processing_class,
        args=SFTConfig(output_dir=str(out), **PLAIN | defaults | options),
        train_dataset=Dataset.from_list(list(rows)),
        peft_config=peft,
    )


def logs(trainer: Any, *names: str) -> list[list[float]]:
    """The named values of every logged step, each step once."""
    return [[float(log[name]) for name in names] for log in trainer.state.log_history if names[0] in log]


def flat(trainer: Any, *names: str) -> list[float]:
    """`logs` in one list."""
    return [value for step in logs(trainer, *names) for value in step]


def parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def split_by_change(model: torch.nn.Module, before: dict[str, torch.Tensor]) -> tuple[set[str], set[str]]:
    """Names of the trainable parameters that stayed, and of the frozen ones that moved.

    Parameters that a trainer adds (a teacher's adapter) are left out.
    """
    now = {name: value for name, value in model.named_parameters() if name in before}
    moved = {name for name, value in now.items() if not torch.equal(value, before[name])}
    trainable = {name for name, value in now.items() if value.requires_grad}
    return trainable - moved, moved - trainable
