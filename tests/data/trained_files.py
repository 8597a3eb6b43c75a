"""Files as people have them, with real photos, and the same rows as objects."""

import json
from pathlib import Path

from tests.trainers.runs import cat, cup, said, user, woman

PICTURES = {"woman.png": woman, "cup.png": cup, "cat.png": cat}
QUESTIONS = [
    ("What is it?", ["woman.png"], "A woman."),
    ("Compare them.", ["cup.png", "cat.png"], "Cup and cat."),
    ("Say hello to the user.", [], "Hello."),
]
REJECTED = ["A cup of dogs.", "Nothing.", "No, it is not."]


def as_objects(*names: str) -> list[dict]:
    """The rows in TRL's columns: prompt, images, and by name completion, chosen, rejected or label."""
    rows = []
    for number, ((text, images, answer), wrong) in enumerate(zip(QUESTIONS, REJECTED, strict=True)):
        columns = {"completion": said(answer), "chosen": said(answer), "rejected": said(wrong)}
        columns["label"] = number != 1
        row = {"prompt": user(text), "images": [PICTURES[name]() for name in images]}
        rows.append(row | {name: columns[name] for name in names})
    return rows


def mixture(folder: Path) -> Path:
    """A yaml mixture of a LLaVA file with images and one without."""
    _pictures(folder)
    rows = [_conversation(text, images, answer) for text, images, answer in QUESTIONS]
    _lines(folder / "looked_at.jsonl", rows[:2])
    _lines(folder / "said.jsonl", [*rows[2:], _conversation("Never read.", [], "No.")])
    path = folder / "mixture.yaml"
    path.write_text(
        "datasets:\n"
        "  - json_path: looked_at.jsonl\n"
        "    image_folder: pictures\n"
        "  - json_path: said.jsonl\n"
        "    sampling_strategy: first:1\n"
    )
    return path


def messages(folder: Path, *names: str) -> Path:
    """Messages with columns such as completion, or chosen and rejected; see `as_objects`."""
    _pictures(folder)
    rows = []
    for row, (_, images, _) in zip(as_objects(*names), QUESTIONS, strict=True):
        rows.append(row | {"images": [f"pictures/{name}" for name in images]})
    path = folder / "messages.jsonl"
    _lines(path, rows)
    return path


def _conversation(text: str, images: list[str], answer: str) -> dict:
    marked = "<image>\n" * len(images) + text
    said = [{"from": "human", "value": marked}, {"from": "gpt", "value": answer}]
    return {"image": images, "conversations": said} if images else {"conversations": said}


def _pictures(folder: Path) -> None:
    (folder / "pictures").mkdir(parents=True)
    for name, picture in PICTURES.items():
        picture().save(folder / "pictures" / name)


def _lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
