"""The files that the page shows, and a dataset with labels."""

import json
from pathlib import Path

import datasets

from hf_vlm_rl import AutoVLMPolicy
from tests.documents.pages import PAGES
from tests.documents.pages import blocks as code
from tests.images import photo

datasets.config.HF_DATASETS_CACHE = Path("cache")
shown = [
    block.source for block in code(PAGES["docs/data.md"].read_text()) if block.language in ("json", "yaml")
]
for path in ("photos", "classes/cats", "classes/cups"):
    Path(path).mkdir(parents=True)
for path in ("photos/cat.jpg", "classes/cats/1.jpg", "classes/cups/2.jpg"):
    photo("coffee" if "cups" in path else "cat", (112, 112)).save(path)
train, chat, pairs, mixture = shown
Path("train.jsonl").write_text(train)
Path("chat.json").write_text(json.dumps([json.loads(chat)] * 3))
Path("pairs.jsonl").write_text(pairs)
Path("mixture.yaml").write_text(mixture)
Path("bad.jsonl").write_text(
    train.splitlines()[0] + "\n" + train.splitlines()[0].replace("Where", "<image>") + "\n"
)
hub_dataset = datasets.Dataset.from_dict(
    {"question": ["What?"], "image": [photo("cat", (112, 112))], "label": [0], "split": ["train"]},
    features=datasets.Features(
        question=datasets.Value("string"),
        image=datasets.Image(),
        label=datasets.ClassLabel(names=["cat", "cup"]),
        split=datasets.Value("string"),
    ),
)
policy = AutoVLMPolicy.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", dtype="float32")
