"""Small runs of trainers on texts and ids alone: rows, arguments, and which trainer they are of."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from hf_vlm_rl import AutoVLMRewardModel
from tests.trainers.homes import home
from tests.trainers.runs import PLAIN, by_ids, cat, cup, said, user


def nothing(policy: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Run:
    """How a trainer is made.

    Attributes:
        package: Of `trl.experimental` where TRL has it, or had it first; "" if that is `trl`.
        rows: Rows in TRL's columns, the first with a given image.
        options: Of its configuration.
        more: Further arguments of the trainer, of a policy.
        adapts: Whether it takes `peft_config`.
        groups: Whether a batch holds several completions of each prompt.
    """

    package: str
    rows: Callable[[Any], list[dict]]
    options: dict[str, Any] = field(default_factory=dict)
    more: Callable[[Any], dict[str, Any]] = nothing
    adapts: bool = True
    groups: bool = False


def prompts(image: Any, **columns: Any) -> list[dict]:
    """Rows with one image, with two and with none."""
    return [
        {"prompt": user("What is it?"), "images": [image], **columns},
        {"prompt": user("Compare them."), "images": [cup(), cat()], **columns},
        {"prompt": user("Say hello to the user."), "images": [], **columns},
    ]


def preferences(image: Any) -> list[dict]:
    return [row | {"chosen": said("A red cup."), "rejected": said("No, nothing.")} for row in prompts(image)]


def triples(image: Any) -> list[dict]:
    return [row | {"reference": said("It is a cup.")} for row in preferences(image)]


def judged(image: Any) -> list[dict]:
    rows = zip(prompts(image), (True, False, True), strict=True)
    return [row | {"completion": said("A red cup."), "label": label} for row, label in rows]


def answered(image: Any) -> list[dict]:
    return [row | {"completion": said("A red cup.")} for row in prompts(image)]


def conversations(image: Any) -> list[dict]:
    rows = prompts(image)
    return [{"messages": [*row["prompt"], *said("A red cup.")], "images": row["images"]} for row in rows]


def hinted(image: Any) -> list[dict]:
    return prompts(image, privileged_context="It is red.")


def changed(policy: Any) -> Any:
    """A policy with other weights, which says something else."""
    other = copy.deepcopy(policy)
    with torch.no_grad():
        for index, weights in enumerate(other.parameters()):
            weights += 0.02 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(index))
    return other


def teacher(policy: Any) -> dict[str, Any]:
    return {"teacher_model": changed(policy)}


def rewarded(policy: Any) -> dict[str, Any]:
    return {"reward_funcs": by_ids}


def by_text(completions: list, **columns: Any) -> list[float]:
    """A reward that differs between completions, for trainers that hand out their texts alone."""
    texts = [text if isinstance(text, str) else text[0]["content"] for text in completions]
    return [sum(map(ord, text)) % 7 / 7 for text in texts]


def told(policy: Any) -> dict[str, Any]:
    return {"reward_funcs": by_text}


def scored(policy: Any) -> dict[str, Any]:
    """A reward model, for trainers that give it their ids."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the head is new
        torch.manual_seed(0)
        model = AutoVLMRewardModel.from_pretrained(policy.config.name_or_path, dtype="float32")
    return {"reward_funcs": model}


def taught(policy: Any) -> dict[str, Any]:
    return teacher(policy) | rewarded(policy)


GROUPS = {"num_generations": 2, "max_completion_length": 6}
LONG = {"max_length": 512}
ONLINE = LONG | {"max_new_tokens": 6}
A2PO = {
    "max_completion_length": 6,
    "max_prompt_length": 512,
    "num_value_samples": 2,
    "filter_all_incorrect": False,
}
SDPO = GROUPS | {"success_reward_threshold": 0.0, "include_environment_feedback": True}
# With a cache, its two models append to one (also for a language model).
NASH = ONLINE | {"generation_kwargs": {"use_cache": False}}
OPD = LONG | {"max_prompt_length": 480, "max_completion_length": 6, "lmbda": 1.0}

RUNS = {
    "A2POTrainer": Run("a2po", prompts, A2PO, told, adapts=False),
    "BCOTrainer": Run("bco", judged, LONG),
    "CPOTrainer": Run("cpo", preferences, LONG),
    "DPOTrainer": Run("", preferences, {"precompute_ref_log_probs": True}),
    "GKDTrainer": Run("gkd", conversations, ONLINE | {"lmbda": 0.0}, teacher),
    "GMPOTrainer": Run("gmpo", prompts, GROUPS, rewarded, groups=True),
    "GRPOTrainer": Run("", prompts, GROUPS, rewarded, groups=True),
    "GRPOWithReplayBufferTrainer": Run("grpo_with_replay_buffer", prompts, GROUPS, rewarded, groups=True),
    "IWOPDTrainer": Run("iw_opd", conversations, OPD, teacher),
    "KTOTrainer": Run("", judged, {"precompute_ref_log_probs": True}),
    "MiniLLMTrainer": Run("minillm", prompts, GROUPS, taught, groups=True),
    "NashMDTrainer": Run("nash_md", prompts, NASH, scored),
    "ORPOTrainer": Run("orpo", preferences, LONG),
    "OnlineDPOTrainer": Run("online_dpo", prompts, ONLINE, told),
    "RLOOTrainer": Run("", prompts, GROUPS, rewarded, groups=True),
    "SDFTTrainer": Run("sdft", hinted, GROUPS | {"num_generations": 1}),
    "SDPOTrainer": Run("sdpo", hinted, SDPO, rewarded, groups=True),
    "SFTTrainer": Run("", answered),
    # Else whether a step trains depends on the random words of a tiny model.
    "SSDTrainer": Run("ssd", prompts, {"max_completion_length": 6, "filter_empty": False}),
    "TPOTrainer": Run("tpo", triples, LONG),
    "XPOTrainer": Run("xpo", prompts, ONLINE, scored),
}


def carried(policy: Any, rows: list[dict], **options: Any) -> Dataset:
    """Rows with their images inside their texts."""
    return Dataset.from_list(rows).map(policy.tokenizer.with_tickets, remove_columns="images", **options)


def trainer_of(name: str, policy: Any, dataset: Dataset, out: Path, **options: Any) -> Any:
    """A trainer of `RUNS` on a policy.

    Args:
        name: Its class.
        policy: The policy.
        dataset: Its rows.
        out: Where it writes.
        **options: `processing_class`; the others of its configuration.
    """
    run = RUNS[name]
    module = home(run.package, name)
    config = getattr(module, name.replace("Trainer", "Config"))
    processing_class = options.pop("processing_class", policy.tokenizer)
    sizes = {"per_device_train_batch_size": 6 if run.groups else 3, "max_steps": 2}
    peft = {"peft_config": policy.lora_config(r=4)} if run.adapts else {}
    return getattr(module, name)(
        model=policy,
        processing_class=processing_class,
        train_dataset=dataset,
        args=config(output_dir=str(out), **PLAIN | sizes | run.options | options),
        **peft,
        **run.more(policy),
    )
