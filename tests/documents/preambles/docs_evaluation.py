"""Held-out rows, a policy and a trainer of it; a module with a reward; a directory of another result."""

from pathlib import Path

from hf_vlm_rl import AutoVLMPolicy
from tests.documents.material import grpo, jsonl, rows

policy = AutoVLMPolicy.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", dtype="float32")
held_out = rows(2).map(lambda row: {"box": [0, 0, 56, 112]})
trainer = grpo(policy)
jsonl("held_out.jsonl")
Path("my_rewards.py").write_text(
    "def polite(completions, **_):\n    return [float('please' in c[-1]['content']) for c in completions]\n"
)
