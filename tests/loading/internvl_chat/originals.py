"""Checkpoints in the original format, written from stock models: the conversion backwards."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import InternVLForConditionalGeneration

from hf_vlm_rl.families.tiny.weights import randomise
from hf_vlm_rl.loading.internvl_chat.config import backbone_of, convert_config
from hf_vlm_rl.loading.internvl_chat.weights import in_original_names

from .golden import QWEN2, directory

TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "vocab.json",
)
IMAGE_TOKEN_ID = 584  # of the tokenizer above
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "vocab_size": 591,
    "pad_token_id": None,
}


def stored_config(directory: Path) -> dict:
    return json.loads((directory / "config.json").read_text())


def original_names(model, tensors: dict[str, torch.Tensor], stored: dict) -> dict[str, torch.Tensor]:
    """Tensors of a stock model (weights or gradients) in the original's layout and names."""
    return in_original_names(model.config, backbone_of(stored, "test"), tensors)


def write_original(
    folder: Path, llm: dict[str, Any], **chat: Any
) -> tuple[InternVLForConditionalGeneration, dict[str, torch.Tensor]]:
    """Write a random checkpoint with the tower and the tokenizer of the Qwen2 golden.

    Args:
        folder: Where to.
        llm: What its `llm_config` has beside `TEXT`, or in place of it.
        **chat: Entries of config.json.

    Returns:
        The stock model with the same weights, and what was written.
    """
    folder.mkdir(parents=True)
    stored = stored_config(directory(QWEN2)) | {"llm_config": TEXT | llm, "torch_dtype": "float32"} | chat
    (folder / "config.json").write_text(json.dumps(stored))
    for name in TOKENIZER_FILES:
        shutil.copy(directory(QWEN2) / name, folder / name)
    tied = llm.get("tie_word_embeddings", False)
    config = convert_config(stored, IMAGE_TOKEN_ID, lambda: not tied, "test")
    model = InternVLForConditionalGeneration(config).float().eval()
    randomise(model, seed=0)
    state = {
        key: value for key, value in model.state_dict().items() if not (tied and key == "lm_head.weight")
    }
    tensors = {key: value.contiguous() for key, value in original_names(model, state, stored).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return model, tensors
