"""Adapters on disk, quantised policies, and what the tests compare."""

from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model
from transformers import BitsAndBytesConfig

from hf_vlm_rl import AutoVLMPolicy
from tests.images import photo

CAT = photo("cat", (150, 150))
BLOCKS = [{"type": "image", "image": CAT}, {"type": "text", "text": "What is it?"}]
FOUR = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
EIGHT = {"load_in_8bit": True}


def random_adapter(policy: Any, **options: Any) -> Any:
    """A random adapter on `policy`; `options` as for `lora_config`."""
    torch.manual_seed(0)
    config = policy.lora_config(**{"r": 4, "init_lora_weights": False} | options)
    model = get_peft_model(policy, config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and "lora_" not in name and config.init_lora_weights is False:
                weight.add_(0.1)  # a module saved whole begins as the base's
    return model


def write_adapter(policy: Any, directory: Path, processor: bool = False, **options: Any) -> Path:
    """Save a random adapter of `policy`, which is changed; `options` as for `lora_config`."""
    random_adapter(policy, **options).save_pretrained(directory)
    if processor:
        policy.processing_class.save_pretrained(directory)
    return directory


def quantised(directory: Path, bits: dict | None = None, **kwargs: Any) -> Any:
    config = BitsAndBytesConfig(**bits or FOUR)
    return AutoVLMPolicy.from_pretrained(
        directory, **{"dtype": "float32", "quantization_config": config} | kwargs
    )


def encoded(processor: Any) -> dict[str, Any]:
    """One image and a question, by a native processor or a processing class."""
    return processor.apply_chat_template(
        [[{"role": "user", "content": BLOCKS}]],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


@torch.no_grad()
def logits(model: torch.nn.Module, processor: Any) -> torch.Tensor:
    return model.eval()(**encoded(processor)).logits


def kinds(policy: torch.nn.Module) -> dict[str, set[str]]:
    """The classes of the linear layers of each part and of the head."""
    family = policy.family
    parts = {"projector": family.projector, "vision": family.vision, "language": (family.language,)}
    found: dict[str, set[str]] = {}
    for name, module in policy.named_modules():
        if isinstance(module, torch.nn.Linear):
            part = next((part for part, paths in parts.items() if name.startswith(paths)), name)
            found.setdefault(part, set()).add(type(module).__name__)
    return found
