"""Unsloth's names for what its kernels compute: the stock model, and PEFT's LoRA on the decoder."""

import sys
from typing import Any

from peft import LoraConfig, get_peft_model
from transformers import AutoModelForImageTextToText, AutoProcessor

DECODER = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


class FastVisionModel:
    """What a script calls, with the arguments that docs/migrate.md gives."""

    @staticmethod
    def from_pretrained(name: str, *, load_in_4bit: bool) -> tuple[Any, Any]:
        """The stock model and its processor."""
        assert not load_in_4bit
        model = AutoModelForImageTextToText.from_pretrained(name, dtype="float32")
        return model, AutoProcessor.from_pretrained(name)

    @staticmethod
    def get_peft_model(model: Any, *, finetune_vision_layers: bool, r: int, lora_alpha: int) -> Any:
        """The model with an adapter."""
        assert not finetune_vision_layers
        return get_peft_model(model, LoraConfig(r=r, lora_alpha=lora_alpha, target_modules=DECODER))


sys.modules["unsloth"] = sys.modules[__name__]
