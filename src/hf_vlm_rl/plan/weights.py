"""Bytes that do not depend on the batch: weights by part, gradients, optimizer."""

from collections import defaultdict
from typing import Any

import torch
from peft import PeftModel
from torch import nn

from ..policy.trained.experts import idle_weights
from ..policy.trained.parts import PART_NAMES, below, part_of

# bitsandbytes' nf4 with double quantisation: 4 bits a weight, 8 bits for the scale of 64 weights, and
# 32 bits for the scale of 256 scales; per layer, tables of 16 and 256 numbers and an offset.
BLOCK, SCALES, TABLES = 64, 256, 4 * (16 + 256 + 1)


def parameter_counts(model: nn.Module, language: str) -> tuple[int, int | None]:
    """How many parameters a model has, and how many of them a token meets.

    The model has no adapters, and its weights are not quantised. `language` is as in `VLMFamily`.

    Returns:
        All, tied ones once; and those without the experts that are not chosen for a token. The vision tower
        counts among both. The second is None where it is not known how many experts are chosen.
    """
    total = sum(parameter.numel() for parameter in model.parameters())
    idle = idle_weights(model, language)
    return total, None if idle is None else total - idle


def weight_bytes(model: nn.Module, quantised: bool) -> dict[str, int]:
    """Bytes of the weights and buffers, by part; adapters apart.

    With `quantised`, the decoder's linear layers are counted in 4 bits. Parts are "vision tower",
    "projector", "embeddings", "decoder", "head" and "adapter"; a head that is tied to the embeddings counts
    0.
    """
    policy = policy_of(model)
    in_four_bits = quantised_layers(policy) if quantised else {}
    embeddings = policy.get_input_embeddings().weight
    head = policy.get_output_embeddings().weight
    sizes: dict[str, int] = defaultdict(int)
    for name, tensor in [*policy.named_parameters(), *policy.named_buffers()]:
        if ".lora_" in name or ".modules_to_save." in name:
            part = "adapter"
        elif tensor is embeddings:
            part = "embeddings"
        elif tensor is head:
            part = "head"
        else:
            part = PART_NAMES[part_of(name, policy.family)]
        sizes[part] += four_bit_bytes(tensor.numel()) if id(tensor) in in_four_bits else tensor.nbytes
    return dict(sizes)


def quantised_layers(policy: Any) -> dict[int, torch.Tensor]:
    """Weights that bitsandbytes quantises, by id: the decoder's linear layers, of exactly that class."""
    return {
        id(module.weight): module.weight
        for name, module in policy.named_modules()
        if type(module) is nn.Linear and ".lora_" not in name and below(name, [policy.family.language])
    }


def four_bit_bytes(count: int) -> int:
    """Bytes of a layer of `count` weights in nf4 with double quantisation."""
    scales = -(-count // BLOCK)
    return -(-count // 2) + scales + 4 * -(-scales // SCALES) + TABLES


def optimizer_bytes(model: nn.Module) -> int:
    """Bytes of AdamW's state: two moments in the weight's dtype, and the step."""
    return sum(2 * parameter.nbytes + 4 for parameter in trained(model))


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that have gradients."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def policy_of(model: nn.Module) -> Any:
    """The policy, without a `PeftModel` around it."""
    return model.get_base_model() if isinstance(model, PeftModel) else model
