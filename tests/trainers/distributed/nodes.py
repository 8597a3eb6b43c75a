"""Run by torchrun on two ranks: two machines that share datasets and an origin, and no image store.

GRPO on rows that the first rank encodes for both: once with a store that both ranks see, and once with a
store for each of them, whose directories are called alike and lie in different working directories.
"""

import faulthandler
import os
import sys
import warnings
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import load_from_disk
from transformers import set_seed

from hf_vlm_rl import AutoVLMPolicy, ImageStore, push_images
from tests.processing.images.noise import files
from tests.trainers.distributed.launch import leave
from tests.trainers.ids_runs import trainer_of
from tests.trainers.runs import logs

LIMIT = 240


def run(checkpoint: str, rows: Path, out: Path, store: ImageStore) -> dict:
    """What a rank ends with: its logs, its adapter, and the files in its store before and after."""
    set_seed(0)
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32", image_store=store)
    with PartialState().main_process_first():
        dataset = load_from_disk(rows).map(policy.tokenizer.with_tickets, remove_columns="images")
        if store.files.origin is not None:
            push_images(policy.processing_class, dataset)
    before = files(store)
    trainer = trainer_of("GRPOTrainer", policy, dataset, out, per_device_train_batch_size=2)
    trainer.train()
    weights = trainer.accelerator.unwrap_model(trainer.model).named_parameters()
    return {
        "logs": logs(trainer, "loss", "grad_norm", "reward"),
        "weights": {name: value.detach().clone() for name, value in weights if value.requires_grad},
        "before": before,
        "after": files(store),
    }


def main(checkpoint: str, out: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # where a rank waits for ever
    rank = PartialState(cpu=True).process_index
    shared = run(checkpoint, out / "rows-shared", out / "shared-out", ImageStore(out / "shared"))
    machine = out / f"machine-{rank}"
    machine.mkdir()
    os.chdir(machine)
    apart = run(
        checkpoint, out / "rows-apart", out / "apart-out", ImageStore("images", origin=out / "origin")
    )
    torch.save({"shared": shared, "apart": apart}, out / f"rank-{rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
    leave()
