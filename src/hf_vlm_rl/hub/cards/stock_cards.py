"""Cards that nobody wrote: those that PEFT and the trainers leave behind when they save."""

import re

from huggingface_hub import ModelCard, ModelCardData

TRAINER_MARKS = (
    "It has been trained using [TRL]",
    "has been generated automatically according to the information the Trainer had",
)
TRAINER_HEADINGS = (
    "Model Card for",
    "Quick start",
    "Training procedure",
    "Framework versions",
    "Citations",
    "Model description",
    "Intended uses & limitations",
    "Training and evaluation data",
    "Training hyperparameters",
    "Training results",
)
# What PEFT adds to huggingface_hub's empty template.
PEFT_LINES = re.compile(
    r"- PEFT \S+|- \w+: .*|### Framework versions|## Training procedure|The following `bitsandbytes` .*|"
)


def is_stock(body: str) -> bool:
    """Whether a card is as PEFT or a trainer wrote it, so that nothing is lost with it."""
    if any(mark in body for mark in TRAINER_MARKS):
        headings = re.findall(r"^#+ (.*)$", body.split("```bibtex")[0], flags=re.MULTILINE)
        known = [heading.strip().startswith(TRAINER_HEADINGS) for heading in headings]
        return all(known[1:])  # the first is the model's name
    empty = ModelCard.from_template(ModelCardData()).text
    lines = {line.strip() for line in body.splitlines()} - {line.strip() for line in empty.splitlines()}
    return all(PEFT_LINES.fullmatch(line) for line in lines)
