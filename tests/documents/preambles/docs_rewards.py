"""A policy."""

from hf_vlm_rl import AutoVLMPolicy

policy = AutoVLMPolicy.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", dtype="float32")
