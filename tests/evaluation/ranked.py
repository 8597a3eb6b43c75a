"""A run of two processes with evaluations: for `on_two_ranks`, with CHECKPOINT OUT (ddp | fsdp2)."""

import sys
import warnings
from pathlib import Path

import torch
from peft import get_peft_model
from torch.distributed.fsdp import fully_shard

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.evaluation import EvaluationCallback, evaluate
from tests.evaluation.rows import OPTIONS, mixture, short, starts
from tests.trainers.distributed.launch import leave
from tests.trainers.runs import grpo
from tests.trainers.runs import mixture as train_rows


def main(checkpoint: str, out: str, kind: str) -> None:
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    {"ddp": trained, "fsdp2": sharded}[kind](policy, mixture(), out)


def trained(policy, rows, out: str) -> None:
    """A run under DDP; then an evaluation that fails on the second process."""
    torch.manual_seed(0)
    trainer = grpo(policy, train_rows("internvl") * 2, out, peft=policy.lora_config(r=4), max_steps=2)
    evaluation = EvaluationCallback(rows, [short, starts], **OPTIONS)
    evaluation.log_to(trainer)
    trainer.train()
    rank = trainer.accelerator.process_index
    for step, result in evaluation.results.items():
        result.save(f"{out}/rank-{rank}-{step}.json")
    rows[1]["images"] = ["/nowhere.jpg"]
    try:
        evaluate(trainer.model, rows, short, distributed=True, **OPTIONS)
    except Exception as error:
        Path(f"{out}/rank-{rank}").write_text(f"{type(error).__name__}: {error}")


def sharded(policy, rows, out: str) -> None:
    """Weights spread over both processes, of which one knows an image already; then a step as in training."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    if rank:
        policy.chat("What is it?", rows[0]["images"], max_new_tokens=1)
    torch.manual_seed(0)
    model = get_peft_model(policy, policy.lora_config(r=4))
    for layer in policy.get_submodule(policy.family.language).layers:
        fully_shard(layer)
    fully_shard(model)
    result = evaluate(model, rows, [short, starts], distributed=True, **OPTIONS)
    result.save(f"{out}/rank-{rank}-0.json")
    ids = torch.arange(8)[None] + 20
    model(input_ids=ids, labels=ids).loss.backward()
    again = evaluate(model, rows, [short, starts], distributed=True, **OPTIONS)
    again.save(f"{out}/rank-{rank}-2.json")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(*sys.argv[1:])
    leave()
