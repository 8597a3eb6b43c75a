"""A photo; two completions of four tokens, one step."""

from tests.documents.material import ROLLOUT, photo_file, short_runs

short_runs(GRPO=ROLLOUT, DPO={"per_device_train_batch_size": 2})
photo_file()
