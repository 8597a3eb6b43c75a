"""A policy, a photo, a reward model, and a judge that gives every completion 9 of 10."""

from hf_vlm_rl import AutoVLMPolicy
from tests.documents.material import model_at, photo_file
from tests.rewards.judging.stand_in import StandInJudge
from tests.vllm.stand_in import listening

photo_file()
model_at("reward-model")
judging = listening(StandInJudge(lambda document, images: {"reason": "", "score": 9}), 8001)
judging.__enter__()
policy = AutoVLMPolicy.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", dtype="float32")
