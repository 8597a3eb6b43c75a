"""A tiny InternVL that can write tool calls, warmed up on some of them."""

import json
import random
from pathlib import Path

import torch
from datasets import Dataset
from transformers import InternVLForConditionalGeneration, set_seed
from transformers.utils import get_json_schema

from hf_vlm_rl import AutoVLMPolicy

from ..demo_digits.model import build_config, build_processor
from .data import COLUMNS, QUESTION, ROWS, Sheet, place_of

TOOLS = [Sheet().zoom]
LEARNING_RATE = 2e-3
# Of the warm-up's calls: the others look at any cell, and read what is there. Where to look is left to GRPO.
RIGHT_CALLS = 0.7


def build_policy(directory: str | Path, seed: int):
    """A random checkpoint of about 0.9 M parameters, loaded as a policy."""
    set_seed(seed)
    processor = build_processor(text=_vocabulary())
    config = build_config(processor.tokenizer)
    config.text_config.max_position_embeddings = 512
    InternVLForConditionalGeneration(config).save_pretrained(directory)
    processor.save_pretrained(directory)
    policy = AutoVLMPolicy.from_pretrained(directory, dtype="float32")
    policy.processing_class.enable_tools()
    return policy


def _vocabulary() -> str:
    """What prompts with tools say, so that its words are tokens."""
    cells = " ".join(f"{row} {column}" for row in ROWS for column in COLUMNS)
    call = '<tool_call>\n{"name": "zoom", "arguments": {"cell": "b7"}}\n</tool_call>'
    schema = json.dumps(get_json_schema(TOOLS[0]))
    marks = "<tools>\n</tools> <tool_response>\n</tool_response> system user assistant"
    written = 'You can call these functions: Write each call as a JSON object: {"name": <function>, <object>}'
    return "\n".join((schema, call, marks, written, QUESTION, cells))


def answered(row: dict) -> list[dict]:
    """A row's conversation without the tool: the right answer at once."""
    (message,) = row["prompt"]
    asked = [{"type": "image", "image": row["image"]}, {"type": "text", "text": message["content"]}]
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": row["answer"]}]


def looked_up(row: dict, cell: str) -> list[dict]:
    """A row's conversation with a look at some cell, and the digit there."""
    question, _ = answered(row)
    sheet = Sheet()
    sheet.reset(row["image"])
    call = {"type": "function", "function": {"name": "zoom", "arguments": {"cell": cell}}}
    line, column = place_of(cell)
    return [
        question,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "zoom", "content": sheet.zoom(cell)},
        {"role": "assistant", "content": row["digits"][line * len(COLUMNS) + column]},
    ]


def warm_up(policy, dataset: Dataset, steps: int, seed: int) -> None:
    """Supervised training of all weights on calls and answers: with the tool, and without it.

    Args:
        policy: Trained in place.
        dataset: Sheets of few scans.
        steps: Optimizer steps of 32 conversations each, a quarter of them without the tool.
        seed: Of the order.
    """
    set_seed(seed)
    chance = random.Random(seed)
    zoomed = []
    for row in dataset:
        anywhere = chance.choice(ROWS) + chance.choice(COLUMNS)
        cell = row["cell"] if chance.random() < RIGHT_CALLS else anywhere
        zoomed.append(_encoded(policy.processing_class, looked_up(row, cell), TOOLS))
    plain = [_encoded(policy.processing_class, answered(row), None) for row in dataset]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    policy.train()
    for step in range(steps):
        chosen = [zoomed[i] for i in torch.randint(len(zoomed), (24,))]
        chosen += [plain[i] for i in torch.randint(len(plain), (8,))]
        loss = policy(**_batch(policy.processing_class, chosen), use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            print(f"warm-up step {step + 1}: loss {loss.item():.3f}", flush=True)
    policy.eval()


def _encoded(processing, messages: list[dict], tools: list | None) -> dict:
    """A conversation as ids, tickets and labels; the assistant's turns are its targets."""

    def encode(turns: list[dict], **options):
        call = {"tools": tools, "tokenize": True, "return_dict": True, **options}
        return processing.apply_chat_template([turns], **call)

    whole = encode(messages)
    ids = whole["input_ids"][0]
    labels = [-100] * len(ids)
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":
            start = len(encode(messages[:turn], add_generation_prompt=True)["input_ids"][0])
            end = len(encode(messages[: turn + 1])["input_ids"][0])
            labels[start:end] = ids[start:end]
    return {**whole, "input_ids": ids, "labels": labels}


def _batch(processing, rows: list[dict]) -> dict[str, torch.Tensor]:
    batch = processing.pad([{"input_ids": row["input_ids"]} for row in rows], return_tensors="pt")
    tickets = {name: torch.cat([row[name] for row in rows]) for name in ("pixel_values", "image_grid_thw")}
    labels = torch.full_like(batch["input_ids"], -100)
    for row, seen, given in zip(labels, batch["attention_mask"].bool(), rows, strict=True):
        row[seen] = torch.tensor(given["labels"])
    return {**batch, **tickets, "labels": labels}
