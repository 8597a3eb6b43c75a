"""Greedy answers to the questions of a dataset, and the accuracy figures made from them."""

import math

import numpy as np
import torch
from datasets import Dataset


@torch.inference_mode()
def answers(model, processor, dataset: Dataset, batch_size: int = 100) -> list[str]:
    """Answer every row of `dataset` (columns `prompt`, `image`) with the likeliest tokens."""
    model.eval()
    texts = []
    for start in range(0, len(dataset), batch_size):
        rows = dataset[start : start + batch_size]
        chats = [_with_image(messages) for messages in rows["prompt"]]
        inputs = processor(
            images=[[image] for image in rows["image"]],
            text=processor.apply_chat_template(chats, add_generation_prompt=True, tokenize=False),
            padding=True,
            return_tensors="pt",
        )
        ids = model.generate(**inputs, max_new_tokens=4, do_sample=False)  # (rows, prompt + new)
        completions = ids[:, inputs["input_ids"].shape[1] :]
        texts += processor.batch_decode(completions, skip_special_tokens=True)
    return [text.strip() for text in texts]


def _with_image(messages: list[dict]) -> list[dict]:
    """Put an image placeholder in front of the text of the only message."""
    (message,) = messages
    text = {"type": "text", "text": message["content"]}
    return [{"role": message["role"], "content": [{"type": "image"}, text]}]


def are_right(given: list[str], dataset: Dataset) -> np.ndarray:
    """One bool per row: is the given answer exactly the row's `answer`?"""
    return np.array([text == answer for text, answer in zip(given, dataset["answer"], strict=True)])


def accuracy(right: np.ndarray) -> dict[str, float]:
    """Share of right answers (`value`, 0 to 1) with its 95 % Wilson interval, `low` to `high`."""
    n, share, z = len(right), float(right.mean()), 1.96
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return {"value": share, "low": centre - half, "high": centre + half}


def gain(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """Accuracy after minus before on the same rows, with the 95 % interval of paired data."""
    change = after.astype(float) - before.astype(float)
    half = 1.96 * change.std(ddof=1) / math.sqrt(len(change))
    mean = float(change.mean())
    return {"value": mean, "low": mean - half, "high": mean + half}
