"""Rows with answers, VLM-R1's files as the page shows them, and short runs."""

from pathlib import Path

from tests.documents.material import ROLLOUT, jsonl, photo_file, rows, short_runs
from tests.documents.pages import PAGES
from tests.documents.pages import blocks as code
from tests.documents.peers import unsloth_names  # noqa: F401 (it is `unsloth` then)

short_runs(GRPO=ROLLOUT)
dataset = rows()
Path("coco/train2014").mkdir(parents=True)
photo_file("coco/train2014/1.jpg", "cat")
mixture, lines = (
    block.source for block in code(PAGES["docs/migrate.md"].read_text()) if block.language in ("json", "yaml")
)
Path("rec.yaml").write_text(mixture)
Path("rec.jsonl").write_text(lines * 2)
jsonl("rows.jsonl")
