"""Runs of stock trainers, the same on one process and on two: half the accumulation, twice the ranks.

Also a script for `on_two_ranks`, with CHECKPOINT OUT: what the runs end with goes to OUT, a file a rank.
"""

import faulthandler
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import set_seed

from hf_vlm_rl import AutoVLMPolicy
from tests.trainers.distributed.launch import leave
from tests.trainers.runs import cat, cup, dpo, grpo, logs, said, sft, user, woman

LIMIT = 240
LOGGED = {
    "grpo": ("loss", "grad_norm", "reward", "reward_std"),
    "dpo": ("loss", "grad_norm", "rewards/margins"),
    "sft": ("loss", "grad_norm"),
}
# The weights tell the size of a gradient, which Adam and clipping would hide.
PLAIN_STEPS = {"optim": "sgd", "lr_scheduler_type": "constant", "max_grad_norm": 1e9}
ONE_ROW = {"per_device_train_batch_size": 1, "train_sampling_strategy": "sequential"}
SAVING = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}


def in_turn() -> list[dict]:
    """Rows without and with images, in turn: two ranks that take a prompt each differ as much as can be."""
    return [
        {"prompt": user("Say hello to the user."), "images": []},
        {"prompt": user("What is it?"), "images": [woman()]},
        {"prompt": user("And now say goodbye, please."), "images": []},
        {"prompt": user("Compare them."), "images": [cup(), cat()]},
    ]


def pairs() -> list[dict]:
    answers = [("Hello.", "No, it is not."), ("A woman.", "Dogs."), ("Bye.", "Why?"), ("Cup, cat.", "No.")]
    return [
        row | {"chosen": said(good), "rejected": said(bad)}
        for row, (good, bad) in zip(in_turn(), answers, strict=True)
    ]


def rollout(prompts: list, trainer: Any) -> dict[str, list]:
    """TRL's `rollout_func`: completions by the policy, each row with a seed of its own.

    What a row samples depends on its place in the global batch and not on which process it is in.
    """
    policy = trainer.accelerator.unwrap_model(trainer.model)
    first = trainer.accelerator.process_index * len(prompts)
    found = {"prompt_ids": [], "completion_ids": [], "logprobs": None}
    policy.eval()
    for row, prompt in enumerate(prompts, first):
        batch = trainer.processing_class.apply_chat_template(
            [prompt], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(100 * trainer.state.global_step + row)
            ids = policy.generate(**batch, do_sample=True, max_new_tokens=5)[0].tolist()
        length = batch["input_ids"].shape[1]
        found["prompt_ids"].append(ids[:length])
        found["completion_ids"].append(ids[length:])
    policy.train()
    return found


def group(policy: Any, out: Path, **options: Any) -> dict:
    """GRPO with LoRA and a reference; the four completions of a group are in two batches."""
    steps = {"rollout": rollout, "num_generations": 4, "max_steps": 4} | PLAIN_STEPS
    return online(policy, out, **steps, peft=policy.lora_config(r=4), **options)


def tower(policy: Any, out: Path, **options: Any) -> dict:
    """GRPO of all weights; of the two batches one has no image, so nothing for the tower to learn from."""
    steps = {"rollout": rollout, "max_steps": 2, "beta": 0.0, "gradient_checkpointing": True} | PLAIN_STEPS
    return online(policy, out, **steps, **options)


def sampled(policy: Any, out: Path, **options: Any) -> dict:
    """GRPO with LoRA, TRL's own sampling and Adam, from which a run can go on."""
    return online(policy, out, **SAVING, peft=policy.lora_config(r=4), **options)


def online(policy: Any, out: Path, resume: Path | None = None, **options: Any) -> dict:
    defaults = {"beta": 0.1, "log_multimodal": False, "shuffle_dataset": False}
    steps = accumulated("steps_per_generation")
    return finish(grpo(policy, in_turn(), out, **defaults | steps | options), "grpo", resume)


def preferred(
    policy: Any, out: Path, resume: Path | None = None, rows: list[dict] | None = None, **options: Any
) -> dict:
    """DPO with LoRA."""
    steps = SAVING | PLAIN_STEPS | accumulated() | ONE_ROW
    return finish(
        dpo(policy, rows or pairs(), out, peft=policy.lora_config(r=4), **steps | options), "dpo", resume
    )


def taught(policy: Any, out: Path, rows: list[dict] | None = None, **options: Any) -> dict:
    """SFT of all weights; the two batches of a step have unequal numbers of tokens."""
    rows = [{"images": row["images"], "messages": row["prompt"] + row["chosen"]} for row in rows or pairs()]
    # TRL 1.12's default loss does not average the head's gradient over the ranks of FSDP2.
    steps = ONE_ROW | PLAIN_STEPS | accumulated() | {"gradient_checkpointing": True, "loss_type": "nll"}
    return finish(sft(policy, rows, out, **steps | options), "sft", None)


def accumulated(*names: str) -> dict:
    """Two batches a step, or as many as $BATCHES says, on any number of processes."""
    ranks, batches = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("BATCHES", 2))
    return dict.fromkeys(("gradient_accumulation_steps", *names), batches // ranks)


def finish(trainer: Any, kind: str, resume: Path | None) -> dict:
    """Train; return what was sharded, logged values (a list a step), trained weights and where it ended."""
    trainer.train(resume_from_checkpoint=resume and str(resume))
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {
        "sharded": sorted({type(part).__name__ for part in trainer.model.modules() if is_shard(part)}),
        "state": [trainer.state.global_step, trainer.state.epoch, *trainer.lr_scheduler.get_last_lr()],
        "logs": logs(trainer, *LOGGED[kind]),
        "weights": {name: whole(value) for name, value in model.named_parameters() if value.requires_grad},
    }


def is_shard(part: torch.nn.Module) -> bool:
    return isinstance(part, FSDPModule)


def whole(value: torch.nn.Parameter) -> torch.Tensor:
    """A copy of a weight; every rank must ask for it."""
    if hasattr(value, "ds_id"):  # ZeRO-3
        from deepspeed import zero

        with zero.GatheredParameters([value]):
            return value.detach().clone()
    return (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()


def measure(checkpoint: Path, out: Path, runs: list[Callable], resumed: list[Callable], **options) -> dict:
    """What each of the runs ends with, by its name; those in `resumed` once more from their second step."""

    def run(kind: Callable, name: str, **more: Any) -> dict:
        set_seed(5)  # the adapters' first weights
        policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
        return kind(policy, out / name, **options, **more)

    found = {kind.__name__: run(kind, kind.__name__) for kind in runs}
    for kind in resumed:
        name = f"{kind.__name__} resumed"
        found[name] = run(kind, name, resume=out / kind.__name__ / "checkpoint-2")
    return found


DDP = {"runs": [group, tower, sampled, preferred, taught], "resumed": [sampled, preferred]}


def main(plan: dict, checkpoint: str, out: str, **options: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # where a rank waits for ever
    found = measure(checkpoint, Path(out), **plan, **options)
    torch.save(found, f"{out}/rank-{PartialState().process_index}.pt")
    leave()


if __name__ == "__main__":
    main(DDP, *sys.argv[1:])
