"""Mixtures of experts, found by their shapes: fused weights, and the layers that choose among them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
from torch import nn

# Hybrid decoders mix tokens with convolutions, whose weights have three dimensions and are no experts.
CONVOLUTIONS = (nn.Conv1d, nn.ConvTranspose1d)


def fused_experts(model: nn.Module, path: str) -> dict[str, nn.Parameter]:
    """The parameters that each hold the weights of all experts of a layer.

    Returns:
        Name, as in the model without adapters, to parameter, of shape (experts, ..., ...). Experts that are
        layers of their own are not among them.
    """
    return dict(_fused(model, path))


def routers(model: nn.Module, path: str) -> set[str]:
    """Names of the linear layers that give the fused experts their scores; arguments as `fused_experts`.

    Most routers of transformers are parameters. A router that is a linear layer is a sibling of the experts,
    or alone inside a sibling, and has one output for each expert.
    """
    names: set[str] = set()
    for name, weight in _fused(model, path):
        block, _, experts = name.rpartition(".")[0].rpartition(".")
        for child, module in model.get_submodule(block).named_children():
            if child == experts:
                continue
            layers = {
                layer.replace(".base_layer", ""): part
                for layer, part in module.named_modules(prefix=f"{block}.{child}")
                if isinstance(part, nn.Linear) and ".lora_" not in layer
            }
            if len(layers) == 1 and next(iter(layers.values())).out_features == shape(weight)[0]:
                names |= layers.keys()
    return names


def idle_weights(model: nn.Module, path: str) -> int | None:
    """How many weights of fused experts are not used for a token; arguments as `fused_experts`.

    A layer may have experts for text and others for images. A token uses one kind; the larger one is counted.

    Returns:
        0 without fused experts; None if nothing tells how many experts a router chooses for a token.
    """
    idle = 0
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for name, weight in _fused(model, path):
        block = name.rpartition(".")[0].rpartition(".")[0]
        chosen = _chosen(model.get_submodule(block))
        if chosen is None:
            return None
        number = shape(weight)[0]
        weights = shape(weight).numel()
        idle += weights
        kind = used[block.rpartition(".")[0]]
        kind[block] = kind.get(block, 0) + weights * min(chosen, number) // number
    return idle - sum(max(kind.values()) for kind in used.values())


def _chosen(block: nn.Module) -> int | None:
    """How many experts a router chooses for a token: `top_k` of transformers' blocks or of their routers."""
    numbers = (getattr(module, "top_k", None) for module in (block, *block.children()))
    return next((number for number in numbers if isinstance(number, int)), None)


def shape(weight: nn.Parameter) -> torch.Size:
    """The shape of a parameter. Where DeepSpeed's ZeRO-3 has divided one, only `ds_shape` tells it."""
    return getattr(weight, "ds_shape", weight.shape)


def kinds(names: Iterable[str]) -> str:
    """Names of parameters in one line, the layers' numbers as asterisks."""
    return ", ".join(dict.fromkeys(re.sub(r"\.\d+(?=\.)", ".*", name) for name in names))


def _fused(model: nn.Module, path: str) -> Iterator[tuple[str, nn.Parameter]]:
    for owner, module in model.get_submodule(path).named_modules(prefix=path):
        if isinstance(module, CONVOLUTIONS):
            continue
        for name, weight in module.named_parameters(recurse=False):
            # A first dimension of 1 is no number of experts: towers inside a decoder have such weights.
            if len(shape(weight)) == 3 and shape(weight)[0] > 1:
                yield f"{owner}.{name}".replace(".base_layer", ""), weight
