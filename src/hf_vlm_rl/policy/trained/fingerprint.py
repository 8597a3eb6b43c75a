"""Some values of a base model's weights, by which a saved adapter recognises its base."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

PLACES = 4  # of a weight
DTYPES = {str(dtype)[6:]: dtype for dtype in (torch.float32, torch.bfloat16, torch.float16)}
ADAPTERS = (".lora_", ".ia3_", ".modules_to_save.")


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """`base_dtype`, and `base_weights`: name of a weight to values at fixed places.

    Of layers that are alike, the first. Weights of adapters and quantised weights are left out. Empty if the
    weights are spread over ranks.
    """
    own = _own_weights(model)
    # One of each kind: an adapter that was merged may have changed a single one.
    kinds = {re.sub(r"\d+", "", name): name for name in sorted(own, reverse=True)}
    values = {name: _values(own[name]) for name in sorted(kinds.values())}
    return {"base_dtype": str(own[min(own)].dtype)[6:], "base_weights": values} if own else {}


def other_weight(model: nn.Module, recorded: Mapping[str, Any]) -> str | None:
    """The first weight that differs from a `fingerprint` by more than rounding explains, with both values."""
    weights = _own_weights(model)
    base = DTYPES.get(recorded.get("base_dtype", ""))
    for name, values in recorded.get("base_weights", {}).items():
        if name not in weights or len(values) != PLACES:
            continue  # quantised here; an adapter of another model would not load at all
        dtype = weights[name].dtype
        rounding = 0.0 if dtype is base else max(torch.finfo(each).eps for each in (dtype, base or dtype))
        for value, before in zip(_values(weights[name]), values, strict=True):
            if not abs(value - before) <= rounding * (abs(before) + 1e-5):
                return f"{name} has {value:.6g} where it had {before:.6g}"
    return None


def _own_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = {}
    for name, weight in model.named_parameters():
        whole = type(weight) is nn.Parameter and not hasattr(weight, "ds_id") and not weight.is_meta
        own = whole and not any(part in f".{name}" for part in ADAPTERS)
        if own and weight.numel() and weight.dtype in DTYPES.values():
            weights[name.replace(".base_layer", "").replace(".original_module", "")] = weight
    return weights


def _values(weight: torch.Tensor) -> list[float]:
    flat = weight.detach().reshape(-1)
    places = [(flat.numel() - 1) * (2 * each + 1) // (2 * PLACES) for each in range(PLACES)]
    return [float(value) for value in flat[places].float()]
