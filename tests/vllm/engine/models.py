"""Tiny checkpoints that vLLM can run: its attention on a CPU wants heads of 32 at least."""

import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from hf_vlm_rl.families.tiny import auto_class
from hf_vlm_rl.families.tiny.weights import randomise
from tests.tiny import recipe

HEADS, HEAD = 2, 32  # 64 together, the hidden size of tiny decoders
# vLLM asks Gemma 3's tokenizer for these; the tiny one has single line ends.
SHORT = r"\bvision_tower\.(embeddings|encoder|pre_layrnorm|post_layernorm|head)\."
LINE_ENDS = {"gemma3": ["\n\n", "\n\n\n", "\n\n\n\n"]}


def write_checkpoint(family: str, directory: Path) -> Path:
    """Write a random checkpoint of a family with wider heads, and its processor."""
    made = recipe(family)
    text = made.config.get_text_config()
    widen(text)
    made.processor.tokenizer.add_tokens(LINE_ENDS.get(family, []))
    text.vocab_size = max(text.vocab_size, -(-len(made.processor.tokenizer) // 8) * 8)
    torch.manual_seed(0)
    model = auto_class(made.config).from_config(made.config, dtype=torch.float32)
    randomise(model, seed=0)
    tokenizer = made.processor.tokenizer
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=list(made.stop_ids),
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(directory, save_original_format=made.original_format)
    made.processor.save_pretrained(directory)
    if made.config.vision_config.model_type in ("clip_vision_model", "siglip_vision_model"):
        lengthen(directory / "model.safetensors")
    return directory


def lengthen(path: Path) -> None:
    """Give the weights of CLIP's and SigLIP's towers the names that published checkpoints have."""
    weights = load_file(path)
    longer = {
        re.sub(SHORT, r"vision_tower.vision_model.\1.", name): weight for name, weight in weights.items()
    }
    if set(longer) != set(weights):
        save_file(longer, path, metadata={"format": "pt"})


def widen(text: Any) -> None:
    """Give a decoder two heads of 32, and its rotary sections twice their length."""
    text.num_attention_heads, text.num_key_value_heads = HEADS, 1
    if getattr(text, "head_dim", None) is not None:
        text.head_dim = HEAD
    section = (getattr(text, "rope_parameters", None) or {}).get("mrope_section")
    if section:
        text.rope_parameters["mrope_section"] = [2 * length for length in section]
