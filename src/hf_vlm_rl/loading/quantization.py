"""bitsandbytes for the decoder alone: tower, projector and head keep the compute dtype."""

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import BitsAndBytesConfig

from ..families import VLMFamily
from ..policy.trained.experts import fused_experts, kinds


def decoder_only(kwargs: Mapping[str, Any], family: VLMFamily, head: str = "lm_head") -> dict[str, Any]:
    """Arguments of `from_pretrained` under which bitsandbytes quantises the decoder and nothing else.

    A `BitsAndBytesConfig` (or its dict) that lists `llm_int8_skip_modules` stays as the user wrote it, and so
    does every other quantisation.

    Returns:
        A copy of the arguments, with a copy of the config. `dtype` defaults to the config's
        `bnb_4bit_compute_dtype`, unless that is float32, as it is if nobody chose one.
    """
    kwargs = dict(kwargs)
    config = kwargs.get("quantization_config")
    if isinstance(config, Mapping) and (config.get("load_in_4bit") or config.get("load_in_8bit")):
        config = BitsAndBytesConfig.from_dict(dict(config))
    if not isinstance(config, BitsAndBytesConfig):
        return kwargs
    config = copy.deepcopy(config)
    if config.llm_int8_skip_modules is None:
        # Whole paths: a name such as "vision_tower" would match nothing.
        config.llm_int8_skip_modules = [*family.vision, *family.projector, *family.other, head]
    kwargs["quantization_config"] = config
    dtype = config.bnb_4bit_compute_dtype
    if config.load_in_4bit and dtype != torch.float32 and "torch_dtype" not in kwargs:
        kwargs.setdefault("dtype", dtype)
    return kwargs


def finish_quantised(model: nn.Module, family: VLMFamily) -> None:
    """Let a model that bitsandbytes may have quantised always compute as in training.

    On CPUs with AVX512-BF16, bitsandbytes rearranges 4-bit weights at the first forward in eval mode for a
    kernel without gradients, which it then uses in training, too. This switches that kernel off.

    Warns:
        UserWarning: If it is quantised, and fused experts of its decoder are not: they are no linear layers.
    """
    layer: Any
    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):  # bitsandbytes' 4-bit layers have it
            layer.support_avx512bf16_for_cpu = False
    # transformers sets these on models that it has quantised, and on no others.
    if not (getattr(model, "is_loaded_in_4bit", False) or getattr(model, "is_loaded_in_8bit", False)):
        return
    experts = fused_experts(model, family.language)
    if experts:
        weights = sum(weight.numel() for weight in experts.values())
        dtype = next(iter(experts.values())).dtype
        warnings.warn(
            f"bitsandbytes quantises linear layers. The decoder's experts are none: {weights:,} weights in "
            f"{len(experts)} fused parameters ({kinds(experts)}) stay in {dtype}.",
            stacklevel=2,
        )
