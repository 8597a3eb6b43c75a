"""Rows with answers, and a stand-in for vLLM."""

from trl.trainer import grpo_trainer

from tests.documents.material import rows, short_runs
from tests.vllm.fake import FakeGeneration

grpo_trainer.VLLMGeneration = FakeGeneration
short_runs(GRPO={"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 4})
dataset = rows()
