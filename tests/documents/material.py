"""What preambles share: photos, rows, short runs of stock trainers."""

import functools
import itertools
import json
import shutil
from pathlib import Path

import trl
from datasets import Dataset

from hf_vlm_rl.families.tiny import write_checkpoint
from tests.images import photo

SHORT = {
    "use_cpu": True,
    "bf16": False,
    "max_steps": 1,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
}
ROLLOUT = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 4}


def short_runs(**more: dict) -> None:
    """Give configurations of TRL, by name without `Config`, other defaults; trainers are as they are."""
    for name, options in more.items():
        config = getattr(trl, f"{name}Config")
        setattr(trl, f"{name}Config", functools.partial(config, **SHORT | options))


def photo_file(path: str = "photo.jpg", name: str = "coffee") -> None:
    """Write a photo to the working directory."""
    photo(name, (112, 112)).save(path)


def model_at(path: str, family: str = "qwen2_5_vl") -> None:
    """Write a family's tiny checkpoint where a page has a model."""
    write_checkpoint(family, Path(path))


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def said(text: str) -> list[dict]:
    return [{"role": "assistant", "content": text}]


def rows(count: int = 4) -> Dataset:
    """Questions with an image each; TRL's columns and an answer."""
    names = ("cat", "coffee", "astronaut", "rocket")
    return Dataset.from_list(
        [
            {"prompt": user("What is it?"), "images": [photo(name, (112, 112))], "answer": name}
            for name in names[:count]
        ]
    )


def grpo(policy, out: str = "out", **options):
    """A stock GRPO trainer that is ready to train, with LoRA."""
    config = trl.GRPOConfig(output_dir=out, **SHORT | ROLLOUT | options)
    return trl.GRPOTrainer(
        model=policy,
        processing_class=policy.processing_class,
        reward_funcs=lambda completions, **_: [float(len(c[0]["content"])) for c in completions],
        train_dataset=rows(),
        args=config,
        peft_config=policy.lora_config(r=4),
    )


def jsonl(path: str) -> None:
    """Write held-out rows with the paths of their images."""
    lines = []
    for name in ("cat", "coffee"):
        photo_file(f"{name}.jpg", name)
        lines.append({"prompt": user("What is it?"), "images": [f"{name}.jpg"], "answer": name})
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))


NAMES = ("cat", "coffee", "rocket")
ANSWERS = {"number": "2", "choice": "B", "math": "2", "ocr": "two words"}


def data_of(words: list[str]) -> None:
    """Write what the line of a page, which starts a script of examples/, has as --data, and beside it."""
    options = dict(itertools.pairwise(words))
    (script,) = (Path(word).stem for word in words if word.endswith(".py"))
    where = Path(options.get("--data", "data"))
    if where.suffix == ".yaml":
        where.write_text("datasets:\n  - json_path: rows.jsonl\n    sampling_strategy: all\n")
        where = Path()
    elif where.exists():
        shutil.rmtree(where)
    lines = []
    for name in NAMES:
        folder = where / name if script == "grpo_brand" else where
        folder.mkdir(parents=True, exist_ok=True)
        photo_file(str(folder / f"{name}.jpg"), name)
        lines.append(_row(script, options, f"{name}.jpg", name))
    if script == "grpo_brand":
        Path("aliases.json").write_text(json.dumps({"cat": ["tabby"]}))
        photo_file("data/cat/other.jpg", "astronaut")
        return
    rows = "rows.jsonl" if where == Path() else "metadata.jsonl"
    (where / rows).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _row(script: str, options: dict[str, str], file: str, name: str) -> dict:
    """A row of the form that a script reads."""
    if options["--data"].endswith(".yaml"):
        turns = [{"from": "human", "value": "<image>What is it?"}, {"from": "gpt", "value": name}]
        return {"image": file, "conversations": turns}
    if script == "sft":
        return {"file_names": [file], "prompt": user("What is it?"), "completion": said(f"A {name}.")}
    if script == "grpo_rec":
        return {"file_name": file, "expression": f"the {name}", "box": [8, 16, 96, 104]}
    answer = ANSWERS.get(options.get("--kind"), name)
    return {"file_name": file, "question": "What is it?", "answer": answer}
