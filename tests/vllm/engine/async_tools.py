"""AsyncGRPOTrainer with an environment whose observation and tool are images: run as a program.

`python -m tests.vllm.engine.async_tools CHECKPOINT SERVER FRONT` prints a line of JSON. A tiny model has
never seen a call, so it is taught one, and the server loads what it has learnt. From then on everything is
TRL's: its worker calls the tool, and the adapter goes as TRL sends it.
"""

import functools
import json
import sys
import tempfile

import requests
import torch
from datasets import Dataset
from peft import LoraConfig

from hf_vlm_rl import AutoVLMPolicy, register
from hf_vlm_rl.policy.scored import logprobs_of
from tests.images import photo
from tests.trainers.asynchronous import asynchronous, without_card
from tests.trainers.runs import PLAIN, cat, cup, user, woman
from tests.vllm.engine.async_parts import differences, load_adapter, logged, stayed, unload_adapters

AsyncGRPOTrainer, AsyncGRPOConfig = asynchronous("async_grpo")
# A call has this probability before it is trained.
KNOWN = 0.5


class Photo:
    """An image that is seen at once, and parts of it that a tool shows."""

    def __init__(self, tokenizer):
        self.tokenizer, self.looked = tokenizer, 0

    def reset(self, **columns) -> str:
        self.looked = 0
        return f"Here: {self.tokenizer.mark(woman())}"

    def look(self, x: int) -> str:
        """Look at a part.

        Args:
            x: Which part.
        """
        self.looked += 1
        return f"Part {x}: {self.tokenizer.mark(part(x))}"

    def get_reward(self) -> float:
        return float(self.looked)


def part(x: int):
    return [cup(), cat(), photo("rocket", (84, 140))][x]


def called(x: int) -> list[dict]:
    """A turn in which the model looks at a part."""
    call = {"type": "function", "function": {"name": "look", "arguments": {"x": x}}}
    return [{"role": "assistant", "content": "", "tool_calls": [call]}]


def conversation(tokenizer, environment: Photo, *turns: dict) -> list[int]:
    tools = [environment.look]
    messages = [*user("What is it?" + environment.reset()), *turns]
    last = messages[-1]["role"] != "assistant"
    return list(
        tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=last, return_dict=False)
    )


def teach(checkpoint: str, directory: str) -> None:
    """Write a checkpoint that calls the tool, of one that does not."""
    policy = AutoVLMPolicy.from_pretrained(checkpoint, dtype="float32")
    policy.freeze()
    tokenizer = policy.processing_class.enable_tools().as_tokenizer()
    environment = Photo(tokenizer)
    prompt = conversation(tokenizer, environment)
    rows = [conversation(tokenizer, environment, *called(x)) for x in range(3)]
    eos = tokenizer.eos_token_id
    answers = [row[len(prompt) : row.index(eos, len(prompt)) + 1] for row in rows]
    clean, places = tokenizer.places(prompt)
    carried = [(ticket, None) for ticket, _, _ in places]
    optimizer = torch.optim.Adam([weight for weight in policy.parameters() if weight.requires_grad], 3e-3)
    for _ in range(400):
        optimizer.zero_grad()
        ids = torch.tensor([prompt + answers[0], prompt + answers[1], prompt + answers[2]])
        states = policy.base_model(input_ids=ids, use_cache=False).last_hidden_state
        logits = policy.get_output_embeddings()(states[:, len(prompt) - 1 : -1])
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, len(prompt) :])
        loss.backward()
        optimizer.step()
        if loss * len(answers[0]) < 1.4:
            break
    total = sum(torch.tensor(logprobs_of(policy, clean, carried, answer)).sum().exp() for answer in answers)
    assert total > KNOWN, f"calls have the probability {total}"
    policy.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def run(checkpoint: str, server: str, front: str) -> dict:
    directory = tempfile.mkdtemp()
    teach(checkpoint, directory)
    given = {"method": "reload_weights", "kwargs": {"weights_path": directory}}
    requests.post(f"{server}/collective_rpc", json=given).raise_for_status()
    requests.post(f"{front}/reset_prefix_cache").raise_for_status()
    tokenizer = AutoVLMPolicy.tokenizer(directory).processing_class.enable_tools().as_tokenizer()
    settings = {name: value for name, value in PLAIN.items() if name != "gradient_checkpointing"}
    trainer = AsyncGRPOTrainer(
        model=directory,
        processing_class=tokenizer,
        args=AsyncGRPOConfig(
            tempfile.mkdtemp(),
            **settings | {"learning_rate": 1e-3, "max_steps": 2},
            per_device_train_batch_size=8,
            gradient_accumulation_steps=1,
            num_generations=4,
            max_completion_length=64,
            max_tool_calling_iterations=1,
            token_budget=0,
            queue_maxsize=12,
            vllm_server_base_url=front,
            vllm_server_timeout=60,
        ),
        train_dataset=Dataset.from_list([{"prompt": user("What is it?")}] * 4),
        environment_factory=functools.partial(Photo, tokenizer),
        peft_config=LoraConfig(r=4, target_modules=r".*language_model.*(q|v)_proj"),
    )
    model = trainer.model
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer.train()
    environment = Photo(tokenizer)
    shown = [{"role": "tool", "name": "look", "content": environment.look(x)} for x in (0, 2)]
    seen, other = (conversation(tokenizer, environment, *called(0), turn) for turn in shown)
    name = load_adapter(front, model, tokenizer)
    right, wrong = differences(front, name, model.get_base_model(), tokenizer, seen, other)
    unload_adapters(front)
    metrics = ("ratio", "kl", "tools/call_frequency", "tools/failure_frequency", "rollout/turns_mean")
    return {
        "images": len(tokenizer.places(seen)[1]),
        "stayed": stayed(model, before),
        "after": right,
        "under another image": wrong,
        **logged(trainer, *metrics, "rollout/fork_frac", "rollout/realign_frac", "rewards/Photo"),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    register()
    without_card(AsyncGRPOTrainer)
    print("RESULT " + json.dumps(run(*sys.argv[1:])), flush=True)
