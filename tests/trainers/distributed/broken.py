"""Two ranks whose images are truncated, but for the first: for `on_two_ranks`, with CHECKPOINT OUT."""

import os
import sys
import warnings
from pathlib import Path

import torch
from datasets import Dataset, Image, List

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.data import checked_images
from tests.data.stock import train
from tests.images import photo
from tests.trainers.distributed.launch import leave
from tests.trainers.runs import said, user


def main(checkpoint: str, out: str) -> None:
    rank = int(os.environ["RANK"])
    files = [Path(out) / f"{rank}-{number}.png" for number in range(4)]
    for number, file in enumerate(files):
        photo("cat", (64, 64 + number)).save(file)
        if number:  # TRL looks at the first row when a trainer is made
            file.write_bytes(file.read_bytes()[:-1000])
    columns = {"prompt": user("What?"), "completion": said("A cat.")}
    dataset = Dataset.from_list([columns | {"images": [str(file)]} for file in files])
    options = {"per_device_train_batch_size": 2, "train_sampling_strategy": "sequential"}
    for decode in (True, False):
        rows = checked_images(dataset.cast_column("images", List(Image(decode=decode))))
        policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
        try:
            train("SFT", policy, rows, f"{out}/trainer", **options)
        except Exception as error:
            Path(f"{out}/rank-{rank}-{decode}").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(*sys.argv[1:])
    leave()
