"""TRL's asynchronous trainers by the id of a model, after `register()`, without a server: run as a program.

`python -m tests.trainers.async_runs DIRECTORY PACKAGE FAMILY...` prints a line of JSON for each run of the
trainer of `trl.experimental.PACKAGE`, for checkpoints in DIRECTORY/FAMILY. Samples come from the
policy itself, with the weights that the trainer has when it asks for them.
"""

import inspect
import json
import queue
import sys
import tempfile
import time
import types
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig

from hf_vlm_rl import AutoVLMPolicy, VLMPolicy, register
from hf_vlm_rl.policy.report import Report
from tests.trainers.asynchronous import asynchronous, without_aiohttp, without_card
from tests.trainers.runs import PLAIN, cat, cup, parameters, user, woman

GROUPS, ANSWERS, STEPS, TOP = 2, 3, 3, 4


def reward(completions, **_):
    raise AssertionError("the worker scores")


class Sample(types.SimpleNamespace):
    """What the trainer reads of a sample."""


class Worker(queue.Queue):
    """Gives samples of the trainer's own model: answers in two turns, with images before and between."""

    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer, self.generator = tokenizer, torch.Generator().manual_seed(0)
        self.rollout_buffer, self.metrics_queue, self.version = self, queue.Queue(), 0
        self.policy, self.autocast = None, False
        # Beforehand: under a trainer, the tokenizer asks its server whether it reads tickets.
        self.written = [self.group(number) for number in range(GROUPS * (STEPS + 2))]

    def get(self, *args, **kwargs):
        if self.empty():
            for sample in self.written.pop(0):
                scored = self.scored(sample["input_ids"].tolist(), sample["completion_mask"])
                self.put(Sample(**sample, **scored, model_version=self.version, enqueued_at=time.time()))
        return super().get(*args, **kwargs)

    def scored(self, ids: list[int], trained: np.ndarray) -> dict:
        """What a sample has for each of its tokens: log-probs of the policy."""
        own = self.log_probs(ids)[range(len(ids) - 1), ids[1:]]
        return {"old_log_probs": np.array([0.0, *own.tolist()])}

    def group(self, group: int) -> list[dict]:
        pictures = ([woman()], [cat()], [cup(), cat()], [])[group % 4]
        blocks = [{"type": "image", "image": picture} for picture in pictures]
        messages = [{"role": "user", "content": [*blocks, {"type": "text", "text": "What do you see?"}]}]
        prompt = self.ids(messages)
        more = self.ids(user(f"The tool says: {self.tokenizer.mark(cup())}"))
        made = []
        for number in range(ANSWERS):
            first, second = self.answer(), self.answer()
            parts = [(prompt, 0), (first, 1), *([(more, 0), (second, 1)] if number else [])]
            numbers = {"group_id": group, "prompt_id": group, "teacher_id": "default"}
            sample = {"prompt": messages, "completion": [], "metrics": {}} | numbers
            sample["input_ids"] = np.array([token for part, _ in parts for token in part])
            sample["completion_mask"] = np.array([trained for part, trained in parts for _ in part])
            made.append(sample | {"advantage": float(number - 1)})
        return made

    def ids(self, messages) -> list[int]:
        return list(
            self.tokenizer.apply_chat_template(
                self.tokenizer.with_tickets({"prompt": messages})["prompt"], add_generation_prompt=True
            )["input_ids"]
        )

    def answer(self) -> list[int]:
        return torch.randint(200, 300, (5,), generator=self.generator).tolist()

    def log_probs(self, ids: list[int]) -> torch.Tensor:
        """Of the whole vocabulary behind each token, in a forward of the sample by itself."""
        base, training = self.policy.base_model, self.policy.training
        self.policy.eval()
        report, base.report = base.report, Report()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            states = base(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state
            logits = self.policy.get_output_embeddings()(states)[0].float()
        base.report = report
        self.policy.train(training)
        return logits.log_softmax(-1)

    def start(self): ...
    def stop(self): ...
    def update_model_version(self, version):
        self.version = version

    def check_health(self, stale_after_s): ...


class Taught(Worker):
    """The same with a teacher, the policy at a lower temperature; `divergences` are of each token."""

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        self.divergences: list[float] = []

    def scored(self, ids: list[int], trained: np.ndarray) -> dict:
        own = self.log_probs(ids)[:-1]
        teacher = (own / 0.7).log_softmax(-1)
        top = teacher.topk(TOP).indices
        outside = ~(top == torch.tensor(ids[1:])[:, None]).any(-1)
        tokens = torch.cat([top, torch.where(outside, torch.tensor(ids[1:]), -1)[:, None]], -1)
        values = teacher.gather(-1, tokens.clamp(min=0)).masked_fill(tokens < 0, -torch.inf)
        for place in np.flatnonzero(trained[1:]):
            kept = tokens[place][tokens[place] >= 0]
            p, q = (both[place][kept].exp().double() for both in (teacher, own))
            p, q = (torch.cat([each, 1 - each.sum()[None]]) for each in (p, q))
            self.divergences.append(float((p * (p / q).log()).sum()))
        first = torch.full((1, TOP + 1), -1)
        return {
            "teacher_topk_ids": torch.cat([first, tokens]).numpy(),
            "teacher_topk_logprobs": torch.cat([first * torch.inf, values]).numpy(),
        }


class Nowhere:
    """Weights that are sent nowhere: the worker has the trainer's own."""

    def send_weights(self, weights):
        for _ in weights:
            pass

    def init_weight_transfer(self): ...
    def pause(self): ...
    def resume(self): ...
    def destroy(self): ...


def run(package: str, family: str, checkpoint: Path, **options) -> dict:
    adapter, bf16 = options.get("adapter", False), options.get("bf16", False)
    trainer_class, config = asynchronous(package)
    tokenizer = AutoVLMPolicy.tokenizer(checkpoint)
    left = ("gradient_checkpointing", "bf16")
    settings = {name: value for name, value in PLAIN.items() if name not in left}
    settings |= {"learning_rate": 1e-3, "max_steps": STEPS, "token_budget": 0, "bf16": bf16}
    settings |= {"per_device_train_batch_size": GROUPS * ANSWERS, "gradient_accumulation_steps": 1}
    if package == "async_grpo":
        worker, own = Worker(tokenizer), {"reward_funcs": reward}
        settings["num_generations"] = ANSWERS
    else:
        worker, own = Taught(tokenizer), {}
        settings |= {"teacher_top_k": TOP, "teacher_server_urls": {"default": "http://localhost:1"}}
    if adapter:
        own["peft_config"] = LoraConfig(r=4, target_modules=r".*language_model.*(q|v)_proj")
    trainer = trainer_class(
        model=str(checkpoint),
        processing_class=tokenizer,
        args=config(tempfile.mkdtemp(), **settings),
        train_dataset=Dataset.from_list([{"prompt": user("?")}] * 8),
        rollout_worker=worker,
        weight_transfer=Nowhere(),
        **own,
    )
    policy = trainer.model.get_base_model() if adapter else trainer.model
    worker.policy, worker.autocast = policy, bf16
    before = parameters(trainer.model)
    trainer.train()
    moved = {name for name, weight in parameters(trainer.model).items() if not weight.equal(before[name])}
    report = policy.sharing_report()
    logs = [log for log in trainer.state.log_history if "loss" in log]
    trained = {name for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    return {
        "family": family,
        **options,
        "policy": isinstance(policy, VLMPolicy),
        "attention": {
            part.config._attn_implementation for part in policy.modules() if hasattr(part, "config")
        },
        "checkpointing": trainer.args.gradient_checkpointing,
        **{name: [log.get(name) for log in logs] for name in ("ratio", "kl", "jsd")},
        "divergences": getattr(worker, "divergences", None),
        "stayed": trained - moved,
        "tower": sorted(name for name in trained if "vision" in name or "visual" in name),
        "nodes": sum(log.get("batch/row_tokens_mean", 0) for log in logs),
        "computed": report["tokens_computed"],
        "not_shared": report["not_shared"],
        "images": report["images_encoded"],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    without_aiohttp()
    register()
    base, kind, *families = sys.argv[1:]
    trainer_class, _ = asynchronous(kind)
    without_card(trainer_class)
    adapters = "peft_config" in inspect.signature(trainer_class).parameters
    for name in families:
        for options in ({}, *([{"adapter": True}] if adapters else []), {"bf16": True}):
            result = run(kind, name, Path(base) / name, **options)
            print("RESULT " + json.dumps(result, default=sorted), flush=True)
