"""Tiny data sets on disk, in the formats that the scripts' docstrings describe, and the scripts' runner."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest

from tests.images import photo

SCRIPTS = Path(__file__).parents[3] / "examples"
# For a CPU and a tiny model; everything else is the scripts' own.
TINY = {
    "dtype": "float32",
    "bf16": False,
    "use_cpu": True,
    "max_steps": 2,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 1,
    "learning_rate": 1e-2,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}
PICTURES = {"astronaut": "a woman", "coffee": "a cup", "cat": "a cat"}
SIZE = (112, 112)


@pytest.fixture(scope="session", autouse=True)
def datasets_cache(tmp_path_factory):
    """Keep what `load_dataset` prepares out of the user's cache."""
    kept = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets")
    yield
    datasets.config.HF_DATASETS_CACHE = kept


def run_script(name: str, *positional: str, **options: Any) -> dict[str, Any]:
    """Run a script as `python examples/<name>.py --option value ...` does; return its variables."""
    given = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    path = str(SCRIPTS / f"{name}.py")
    before = sys.argv
    sys.argv = [path, *positional, *given]
    try:
        return runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv = before


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """`data(rows)`: a folder with the three photos and a metadata.jsonl of `rows`."""

    def write(rows: list[dict]) -> Path:
        folder = tmp_path_factory.mktemp("data")
        for name in PICTURES:
            photo(name, SIZE).save(folder / f"{name}.png")
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "metadata.jsonl").write_text(lines)
        return folder

    return write


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def said(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


@pytest.fixture(scope="session")
def questions(data):
    """Columns `image`, `question`, `answer`."""
    return data(
        [
            {"file_name": f"{name}.png", "question": "What is it?", "answer": answer}
            for name, answer in PICTURES.items()
        ]
    )


@pytest.fixture(scope="session")
def conversations(tmp_path_factory):
    """A .jsonl as LLaVA has it, with one image, two and none in a row; beside it, a .yaml mixture of it."""
    folder = tmp_path_factory.mktemp("conversations")
    for name in PICTURES:
        photo(name, SIZE).save(folder / f"{name}.png")
    rows = [
        {"image": "astronaut.png", "conversations": turns("<image>\nWho is it?", "a woman")},
        {
            "image": ["cat.png", "coffee.png"],
            "conversations": turns("<image><image>Compare.", "a cat, a cup"),
        },
        {"conversations": turns("Say hello.", "hello")},
        {"image": "cat.png", "conversations": turns("<image>\nWhat is it?", "a cat")},
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rows.yaml").write_text(
        "datasets:\n  - json_path: rows.jsonl\n    sampling_strategy: first:3\n"
    )
    return path


def turns(asked: str, answer: str) -> list[dict]:
    return [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]


@pytest.fixture(scope="session")
def brands(tmp_path_factory):
    """A folder of images for each name."""
    folder = tmp_path_factory.mktemp("brands")
    for name in PICTURES:
        (folder / name.title()).mkdir()
        for index in range(2):
            photo(name, SIZE).save(folder / name.title() / f"{index}.png")
    return folder


@pytest.fixture(scope="session")
def expressions(data):
    """Columns `image`, `expression`, `box`."""
    return data(
        [
            {"file_name": f"{name}.png", "expression": what, "box": [8, 16, 96, 104]}
            for name, what in PICTURES.items()
        ]
    )


@pytest.fixture(scope="session")
def demonstrations(data):
    """Columns `images`, `prompt`, `completion`: rows with one image and with two."""
    rows = [
        {"file_names": ["cat.png"], "prompt": user("What is it?"), "completion": said("A cat.")},
        {
            "file_names": ["cat.png", "coffee.png"],
            "prompt": user("Compare."),
            "completion": said("Cat, cup."),
        },
        {"file_names": ["astronaut.png"], "prompt": user("Who?"), "completion": said("A woman.")},
    ]
    return data(rows)


@pytest.fixture(scope="session")
def preferences(data):
    """Columns `images`, `prompt`, `chosen`, `rejected`, also as a pairs.jsonl."""
    rows = [
        {
            "file_names": [f"{name}.png"],
            "prompt": user("What is it?"),
            "chosen": said(f"It is {what}."),
            "rejected": said("Nothing."),
        }
        for name, what in PICTURES.items()
    ]
    folder = data(rows)
    lines = [json.dumps({"images": row.pop("file_names"), **row}) + "\n" for row in rows]
    (folder / "pairs.jsonl").write_text("".join(lines))
    return folder
