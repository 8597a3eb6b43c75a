"""The files of a PEFT adapter and of the processor beside it: names, and what is read without a model."""

import json
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
# The trainings of an adapter, in the `auto_mapping` of its config.
STAGES = "stages"
# In saved tensors, names of the base model's modules begin with it.
PREFIX = "base_model.model."
# A folder with one of these has a processor.
PROCESSOR_CONFIGS = ("processor_config.json", "preprocessor_config.json")
# What the processors and tokenizers of transformers write.
PROCESSOR = (
    *PROCESSOR_CONFIGS,
    "added_tokens.json",
    "additional_chat_templates/*.jinja",
    "chat_template.jinja",
    "chat_template.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
    "vocab.json",
    "vocab.txt",
)


def read_config(folder: Path) -> dict[str, Any]:
    """An adapter's `adapter_config.json`.

    Raises:
        ValueError: If it is damaged.
    """
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be read ({error}). Expected JSON: save the adapter again."
        ) from error
    if not isinstance(config, dict) or "peft_type" not in config:
        raise ValueError(f"{path} cannot be read: no peft_type in it. Expected the config of a PEFT adapter.")
    return config


def changes_nothing(folder: Path) -> bool:
    """Whether the saved tensors are those of LoRA alone, and every B is zero."""
    with safe_open(folder / WEIGHTS, framework="pt") as file:  # NumPy has no bfloat16
        names = list(file.keys())
        plain = all(re.search(r"\.lora_(embedding_)?[AB]\b", name) for name in names)
        ups = [name for name in names if re.search(r"\.lora_(embedding_)?B\b", name)]
        return plain and not any(bool(file.get_tensor(name).any()) for name in ups)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def read_shapes(folder: Path) -> dict[str, list[int]]:
    """Shapes of the saved tensors by name.

    Raises:
        ValueError: If the file is damaged.
    """
    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="np") as file:
            return {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or truncated ({error}). Save or download the adapter again."
        ) from error
