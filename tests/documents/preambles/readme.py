"""A dataset, held-out rows, photos, a mixture of files; two completions of four tokens."""

import json
from pathlib import Path

import datasets

from hf_vlm_rl import AutoVLMPolicy  # noqa: F401
from tests.documents.material import ROLLOUT, photo_file, rows, short_runs

short_runs(GRPO=ROLLOUT)
photo_file()
dataset, held_out = rows(), rows(2)

datasets.config.HF_DATASETS_CACHE = Path("cache")
said = [{"from": "human", "value": "What is it?"}, {"from": "gpt", "value": "coffee"}]
lines = [{"image": "photo.jpg", "conversations": said}] + [{"conversations": said}] * 19
Path("llava.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
Path("mixture.yaml").write_text("datasets: [{json_path: llava.jsonl, sampling_strategy: all}]\n")
