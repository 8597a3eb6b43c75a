"""A policy, rows to look at and a trainer of it."""

from hf_vlm_rl import AutoVLMPolicy
from tests.documents.material import grpo, rows

policy = AutoVLMPolicy.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", dtype="float32")
selection = rows(2)
trainer = grpo(policy)
