"""Floating-point operations of an update's decoder and head, and what a card does at most.

Of a decoder with frozen weights and LoRA, for each token: 2 for each weight of a linear layer forward, 2
backward for the gradient of its input, and 2 more backward for a weight that is trained. Attention: 4 x heads
x head size for each pair of a token and one that it sees, forward, and twice that backward. Layers with a
recurrent state count by their linear layers alone, mixtures of experts are not counted, nor are norms,
embeddings and the vision tower. Activations computed again under gradient checkpointing are not counted:
they are no use to the model.
"""

import time
from typing import Any

import torch
from torch import nn

# Dense bfloat16 without sparsity, in FLOP/s, by vendors' datasheets; the first whose name is in the card's.
DATASHEETS = {
    "B200": 2250e12,
    "GH200": 989e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "A10G": 70e12,
    "RTX 4090": 165e12,
}


def linear_flops(module: nn.Module, tokens: int) -> float:
    """Forward and backward of all linear layers of a module, on so many tokens."""
    weights = [part.weight for part in module.modules() if isinstance(part, nn.Linear)]
    return sum(weight.numel() * (6 if weight.requires_grad else 4) for weight in weights) * tokens


def attention_flops(config: Any, pairs: int) -> float:
    """Forward and backward of all layers that attend.

    Args:
        config: The text config.
        pairs: Of a token and one that it sees.
    """
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    layers = sum(kind.endswith("attention") and kind != "linear_attention" for kind in kinds)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 12 * layers * config.num_attention_heads * size * pairs


def update_flops(policy: Any, prompt: int, completion: int, group: int, once: bool) -> float:
    """Of an update of the decoder and the head; reference passes are not counted.

    Args:
        policy: Of this package, with LoRA layers in place.
        prompt: Tokens of the prompt.
        completion: Tokens of each completion.
        group: Completions.
        once: The prompt counts once: unique tokens. Else once for each completion.
    """
    decoder = policy.base_model.decoder
    prompts = 1 if once else group
    tokens = prompts * prompt + group * completion
    pairs = prompts * _causal(prompt) + group * (completion * prompt + _causal(completion))
    flops = linear_flops(decoder, tokens) + attention_flops(decoder.config, pairs)
    return flops + linear_flops(policy.get_output_embeddings(), group * (completion + 1))


def _causal(length: int) -> int:
    return length * (length + 1) // 2


def peak_flops(device: str, dtype: torch.dtype, side: int = 8192) -> tuple[float, str]:
    """FLOP/s of the card by its datasheet, or as measured where that is not known; and where it is from."""
    measured = measured_flops(device, dtype, side)
    text = f"{measured / 1e12:.3g} TFLOP/s measured ({side} x {side} product)"
    name = torch.cuda.get_device_name() if device == "cuda" else ""
    known = next((flops for part, flops in DATASHEETS.items() if part in name), None)
    if known is None or dtype is not torch.bfloat16:
        return measured, text
    return known, f"{known / 1e12:.4g} TFLOP/s by datasheet, {text}"


def measured_flops(device: str, dtype: torch.dtype, side: int) -> float:
    """FLOP/s of a matrix product of random numbers; the best of ten."""
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        _wait(device)
        began = time.perf_counter()
        left @ right
        _wait(device)
        best = min(best, time.perf_counter() - began)
    return 2 * side**3 / best


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
