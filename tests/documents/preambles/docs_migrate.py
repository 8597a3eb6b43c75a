"""Rows with answers, VLM-R1's files as the page shows them, and short runs."""

from pathlib import Path

from tests.documents.material import ROLLOUT, jsonl, photo_file, rows, short_runs
from tests.documents.pages import PAGES
from tests.documents.pages import blocks as code
from tests.documents.peers import unsloth_names  # noqa: F401 (it is `unsloth` then)
from tests.tiny import recipe

# Of random weights, stock samples image placeholders now and then, and fails: the page says so.
config = recipe("qwen2_5_vl").config
never = {"generation_kwargs": {"suppress_tokens": [config.image_token_id, config.video_token_id]}}
short_runs(GRPO=ROLLOUT | never)
dataset = rows()
Path("coco/train2014").mkdir(parents=True)
photo_file("coco/train2014/1.jpg", "cat")
mixture, lines = (
    block.source for block in code(PAGES["docs/migrate.md"].read_text()) if block.language in ("json", "yaml")
)
Path("rec.yaml").write_text(mixture)
Path("rec.jsonl").write_text(lines * 2)
jsonl("rows.jsonl")
