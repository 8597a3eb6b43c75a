"""Evaluations on two processes: for `on_two_ranks`, with CHECKPOINT OUT (ddp | fsdp2 | nodes | attacked)."""

import copy
import json
import os
import random
import re
import sys
import warnings
from pathlib import Path

import torch
from datasets import Dataset, Image, List
from peft import get_peft_model
from torch.distributed.fsdp import fully_shard

from hf_vlm_rl import AutoVLMPolicy
from hf_vlm_rl.evaluation import EvaluationCallback, evaluate
from tests.evaluation.rows import OPTIONS, mixture, short, starts, user
from tests.images import photo
from tests.trainers.distributed.launch import leave
from tests.trainers.runs import grpo
from tests.trainers.runs import mixture as train_rows


def main(checkpoint: str, out: str, kind: str) -> None:
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    kinds = {"ddp": trained, "fsdp2": sharded, "nodes": resumed, "attacked": attacked}
    kinds[kind](policy, mixture(), out)


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


def resumed(policy, rows, out: str) -> None:
    """A finished run that is resumed on two machines, each of which has an output folder of its own."""
    os.environ["LOCAL_RANK"] = "0"
    rank = os.environ["RANK"]
    started = copy.deepcopy(policy)
    for part, model, checkpoint in (("first", policy, None), ("again", started, "checkpoint-2")):
        torch.manual_seed(0)
        steps = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2, "save_on_each_node": True}
        folder = f"{out}/node-{rank}"
        trainer = grpo(model, train_rows("internvl") * 2, folder, peft=model.lora_config(r=4), **steps)
        evaluation = EvaluationCallback(rows, [short, starts], **OPTIONS)
        evaluation.log_to(trainer)
        trainer.train(resume_from_checkpoint=checkpoint and f"{folder}/{checkpoint}")
        Path(f"{out}/rank-{rank}-{part}").write_text(str(evaluation.comparison))


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


CASES = 24


def attacked(policy, rows, out: str) -> None:
    """Evaluations of drawn bad rows, files and rewards, by one process alone and by both."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    told = []
    for case in range(CASES):
        drawn = random.Random(case)
        dataset, options = _dataset(drawn, Path(out) / f"{rank}-{case}"), OPTIONS | {"batch_size": 2}
        reward = drawn.choice([short, short, _fails_on_one_row, _fails_everywhere])
        options["on_error"] = drawn.choice(["skip", "skip", "raise"])
        alone, together = (
            _outcome(policy, dataset, reward, options | {"distributed": together})
            for together in (False, True)
        )
        told.append([re.sub("/[01]-[0-9]+/", "/", said) for said in (alone, together)])
    Path(f"{out}/rank-{rank}").write_text(json.dumps(told))


def _dataset(drawn: random.Random, folder: Path):
    folder.mkdir()
    paths, prompts = [], []
    for number in range(drawn.randint(1, 7)):
        path = folder / f"{number}.png"
        photo("cat", (40 + number, 40)).save(path)
        fault = drawn.choice(["none", "none", "cut", "gone", "empty", "prompt"])
        if fault in ("cut", "empty"):
            path.write_bytes(path.read_bytes()[: 900 if fault == "cut" else 0])
        paths.append([str(path if fault != "gone" else folder / "gone.png")])
        prompts.append([] if fault == "prompt" else user(f"What is number {number}?"))
    dataset = Dataset.from_dict({"prompt": prompts, "images": paths})
    decode = drawn.choice([True, True, False])
    dataset = dataset.cast_column("images", List(Image(decode=decode)))
    return dataset.to_iterable_dataset() if drawn.random() < 0.4 else dataset


def _outcome(policy, dataset, reward, options) -> str:
    try:
        result = evaluate(policy, dataset, reward, **options)
    except Exception as error:
        return re.sub("0x[0-9A-Fa-f]+", "0x", f"{type(error).__name__}: {error}")  # of images
    return f"scored: {result.rewards} {result.row_ids} {sorted(result.failures.items())}"


def _fails_on_one_row(completions, prompts, **_):
    return [1 / ("number 1" not in str(prompt)) for prompt in prompts]


def _fails_everywhere(completions, **_):
    return [float("nan") for _ in completions]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(*sys.argv[1:])
    leave()
