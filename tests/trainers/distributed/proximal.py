"""PPO of which a batch is the same on one process and on two; what a row says depends on its weights alone.

Also a script for `on_two_ranks`, with CHECKPOINT OUT.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from accelerate import PartialState
from trl.experimental.ppo import ppo_trainer

from hf_vlm_rl import AutoVLMPolicy, AutoVLMValueModel
from tests.scoring.runs import log, ppo, rows_of
from tests.trainers.distributed.launch import leave

# All rows are one micro-batch, so their order is of no account. With several, accelerate would step after
# each of them: it does so in the last batch of a dataset, and here every batch is the last.
ROWS = {"gradient_accumulation_steps": 1, "num_mini_batches": 1, "total_episodes": 8}
PLAIN_STEPS = {"optim": "sgd", "lr_scheduler_type": "constant", "learning_rate": 1e-2}
LOGGED = ("objective/kl", "objective/entropy", "objective/scores", "objective/rlhf_reward", "loss/value_avg")


def likeliest(probabilities: torch.Tensor, num_samples: int, **options: Any) -> torch.Tensor:
    """In the place of `torch.multinomial`, whose words depend on a row's place in a batch."""
    return probabilities.argmax(-1, keepdim=True)


def unwhitened(advantages: torch.Tensor, mask: torch.Tensor, shift_mean: bool = True) -> torch.Tensor:
    return advantages


def run(checkpoint: str, out: Path) -> dict:
    """Two batches of four rows: the logs, and the trained weights of policy and value model."""
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32").freeze()
    torch.manual_seed(0)  # the value model's head is new
    value = AutoVLMValueModel.from_pretrained(
        checkpoint, dtype="float32", processing_class=policy.processing_class
    )
    value.model.requires_grad_(False)
    value.get_submodule(policy.family.language).requires_grad_(True)
    steps = {"per_device_train_batch_size": 4 // int(os.environ.get("WORLD_SIZE", 1))}
    rows = rows_of(policy, "internvl")
    with mock.patch("torch.multinomial", likeliest):
        trainer = ppo(policy, rows, value, out, **ROWS | PLAIN_STEPS | steps)
        trainer.train()
    models = trainer.accelerator.unwrap_model(trainer.model)
    weights = {name: w.detach().clone() for name, w in models.named_parameters() if w.requires_grad}
    return {
        "logs": list(zip(*(log(trainer, name) for name in LOGGED), strict=True)),
        "weights": weights,
    }


def measure(checkpoint: str, out: Path) -> dict[str, dict]:
    """TRL's PPO, and what it would be without whitening, which each process does for itself."""
    found = {"stock": run(checkpoint, out / "stock")}
    with mock.patch.object(ppo_trainer, "masked_whiten", unwhitened):
        return found | {"unwhitened": run(checkpoint, out / "unwhitened")}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    checkpoint, out = sys.argv[1:]
    found = measure(checkpoint, Path(out))
    torch.save(found, f"{out}/rank-{PartialState().process_index}.pt")
    leave()
