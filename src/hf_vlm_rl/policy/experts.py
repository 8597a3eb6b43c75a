"""Mixtures of experts, found by their shapes: fused weights, and the layers that choose among them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
from torch import nn

# Their weights have three dimensions as well, and are no experts: hybrid decoders mix tokens with them.
CONVOLUTIONS = (nn.Conv1d, nn.ConvTranspose1d)


def fused_experts(model: nn.Module, path: str) -> dict[str, nn.Parameter]:
    """The weights of experts that are one parameter for all of them.

    Args:
        model: A policy, with adapters or without, on any device.
        path: Its decoder, as `VLMFamily.language`.

    Returns:
        Name, as in the model without adapters, to parameter, of shape (experts, ..., ...). Experts that are
        layers of their own are not among them.
    """
    return dict(_fused(model, path))


def routers(model: nn.Module, path: str) -> set[str]:
    """Names of the linear layers that give the fused experts their scores; arguments as `fused_experts`.

    Most routers of transformers are parameters. Those that are layers stand beside the experts, alone or
    inside a module of their own, and have an output for each.
    """
    found: set[str] = set()
    for name, weight in _fused(model, path):
        block, _, own = name.rpartition(".")[0].rpartition(".")
        for child, module in model.get_submodule(block).named_children():
            if child == own:
                continue
            layers = {
                layer.replace(".base_layer", ""): part
                for layer, part in module.named_modules(prefix=f"{block}.{child}")
                if isinstance(part, nn.Linear) and ".lora_" not in layer
            }
            if len(layers) == 1 and next(iter(layers.values())).out_features == shape(weight)[0]:
                found |= layers.keys()
    return found


def idle_weights(model: nn.Module, path: str) -> int | None:
    """How many weights of fused experts a token does not meet; arguments as `fused_experts`.

    Of experts that stand side by side in one layer, for text and for images, a token meets one kind: the
    larger one is taken.

    Returns:
        0 where there are no fused experts; None where the number of experts that are chosen is not known.
    """
    idle = 0
    met: dict[str, dict[str, int]] = defaultdict(dict)
    for name, weight in _fused(model, path):
        block = name.rpartition(".")[0].rpartition(".")[0]
        chosen = _chosen(model.get_submodule(block))
        if chosen is None:
            return None
        number = shape(weight)[0]
        weights = shape(weight).numel()
        idle += weights
        kind = met[block.rpartition(".")[0]]
        kind[block] = kind.get(block, 0) + weights * min(chosen, number) // number
    return idle - sum(max(kind.values()) for kind in met.values())


def _chosen(block: nn.Module) -> int | None:
    """The number of experts that are chosen for a token, as transformers' blocks or their routers name it."""
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
            # One of a kind is no expert: towers inside a decoder have such weights.
            if len(shape(weight)) == 3 and shape(weight)[0] > 1:
                yield f"{owner}.{name}".replace(".base_layer", ""), weight
