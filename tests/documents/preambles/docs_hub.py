"""A trainer of a policy whose base is on the Hub."""

from hf_vlm_rl import AutoVLMPolicy
from tests.documents.material import grpo

policy = AutoVLMPolicy.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", dtype="float32")
trainer = grpo(policy, hub_model_id="user/other")
