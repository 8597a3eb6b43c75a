"""Run by torchrun on two ranks: PPO on rows that a third process encoded."""

import sys
import warnings

import datasets
import torch

from hf_vlm_rl import AutoVLMPolicy, AutoVLMValueModel, RewardFunctionModel
from tests.scoring.runs import log, ppo
from tests.trainers.distributed.launch import leave


def main(checkpoint, rows, out):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32").freeze()
    value = AutoVLMValueModel.from_pretrained(
        checkpoint, dtype="float32", processing_class=policy.processing_class
    )
    value.model.requires_grad_(False)
    value.get_submodule(policy.family.language).requires_grad_(True)
    model = RewardFunctionModel(lambda answer, **_: [float(one) for one in answer], policy.processing_class)
    trainer = ppo(
        policy,
        datasets.load_from_disk(rows),
        value,
        out,
        reward=model,
        callbacks=[model.callback],
        per_device_train_batch_size=1,
    )
    trainer.train()
    # To a file: the ranks' lines may run into each other.
    with open(f"{out}/rank-{trainer.accelerator.process_index}", "w") as file:
        file.write(str(log(trainer, "rewards/<lambda>/mean")))
    assert abs(log(trainer, "objective/kl")[0]) < 1e-5


if __name__ == "__main__":
    main(*sys.argv[1:])
    leave()
