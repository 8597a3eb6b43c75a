"""Greedy answers on a dataset, and how many of them are right."""

import torch
from datasets import Dataset


@torch.inference_mode()
def answers(model, processor, dataset: Dataset, batch_size: int = 100) -> list[str]:
    """One greedy answer per row of `dataset` (columns `prompt` and `image`)."""
    model.eval()
    texts = []
    for start in range(0, len(dataset), batch_size):
        rows = dataset[start : start + batch_size]
        prompts = [
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": message["content"]}]}]
            for (message,) in rows["prompt"]
        ]
        inputs = processor(
            images=[[image] for image in rows["image"]],
            text=processor.apply_chat_template(prompts, add_generation_prompt=True, tokenize=False),
            padding=True,
            return_tensors="pt",
        )
        ids = model.generate(**inputs, max_new_tokens=4, do_sample=False)
        completions = ids[:, inputs["input_ids"].shape[1] :]
        texts += processor.batch_decode(completions, skip_special_tokens=True)
    return [text.strip() for text in texts]
