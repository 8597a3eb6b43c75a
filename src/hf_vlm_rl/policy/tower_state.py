"""Whether a frozen vision tower still makes the features that it made before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from transformers import PreTrainedConfig

from .foreign_hooks import foreign_hook

# What PEFT calls the base's own layer and module, where an adapter comes in its place.
ADAPTED = frozenset({"base_layer", "original_module"})

# Elements of a tensor that are looked at to see whether it has changed. An edit that leaves all of them as
# they are goes unseen; edits of whole tensors (averaging, merging, casting) do not.
SAMPLES = 16


@dataclass(frozen=True, eq=False)
class TowerState:
    """What the features of a frozen tower depend on.

    Attributes:
        facts: What can be compared on the CPU: versions of the tensors, settings, dtype, device.
        samples: Bytes of some elements of every tensor, one tensor a device. Edits of `parameter.data`
            change no version; these see them.
    """

    facts: tuple
    samples: tuple[torch.Tensor, ...]

    def equals(self, other: "TowerState | None") -> bool:
        """Whether features made in one state are those of the other."""
        if other is None or self.facts != other.facts or len(self.samples) != len(other.samples):
            return False
        return all(
            torch.equal(mine, theirs) for mine, theirs in zip(self.samples, other.samples, strict=True)
        )


def frozen_state(backbone: Any, language: str, how: tuple = ()) -> TowerState | None:
    """What the features of a frozen tower depend on; None if they must not be kept.

    They are not kept if any part of the backbone other than the decoder is trained, carries an
    adapter (which can be switched off), drops activations at random, or runs a hook of somebody else.

    Args:
        backbone: The multimodal backbone.
        language: Name of its text decoder.
        how: Whatever else the features depend on, comparable.
    """
    if torch.is_inference_mode_enabled():  # its tensors cannot take part in a later backward
        return None
    tensors = list(backbone.named_parameters(recurse=False)) + list(backbone.named_buffers(recurse=False))
    for name, module in backbone.named_children():
        if name == language:
            continue
        if (module.training and _is_random(module)) or foreign_hook(module):
            return None
        tensors += [*module.named_parameters(), *module.named_buffers()]
    if any(_may_change(name, tensor) for name, tensor in tensors):
        return None
    kind = backbone.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    # `_version` is public in effect: autograd's documentation explains it, and nothing else tells.
    versions = tuple((tensor.data_ptr(), tensor._version) for _, tensor in tensors)
    facts = (backbone.dtype, backbone.device, autocast, versions, settings_of(backbone.config), how)
    return TowerState(facts, _samples([tensor for _, tensor in tensors]))


def settings_of(config: PreTrainedConfig) -> tuple:
    """The values of a config and of the configs inside it, the decoder's aside, comparable."""
    decoder = config.get_text_config()
    values: list[tuple[str, Any]] = []
    for name, value in vars(config).items():
        if not isinstance(value, PreTrainedConfig):
            values.append((name, repr(value)))
        elif value is not decoder:
            values.append((name, settings_of(value)))
    return tuple(values)


@torch.no_grad()
def _samples(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Some elements of each tensor, without waiting for the device once."""
    groups: dict[tuple, list[torch.Tensor]] = {}
    for tensor in tensors:
        if number := min(SAMPLES, tensor.numel()):
            # One view of a contiguous tensor, the common case: towers have hundreds of tensors.
            flat = tensor if tensor.is_contiguous() else tensor.reshape(-1)
            samples = flat.as_strided((number,), (flat.numel() // number,), flat.storage_offset())
            groups.setdefault((tensor.device, tensor.dtype), []).append(samples)
    # To compare is to wait for the device: once, whatever dtypes there are.
    on_device: dict[torch.device, list[torch.Tensor]] = {}
    for (device, _), group in groups.items():
        on_device.setdefault(device, []).append(torch.cat(group).view(torch.uint8))
    return tuple(torch.cat(group) for group in on_device.values())


def _may_change(name: str, tensor: torch.Tensor) -> bool:
    return tensor.requires_grad or tensor.is_inference() or not ADAPTED.isdisjoint(name.split("."))


def _is_random(module: nn.Module) -> bool:
    """Whether a module in training mode gives an image other features each time, or in other company."""
    # Projectors are plain modules without a config.
    config = getattr(module, "config", None)
    rates = config.to_dict() if config is not None else {}
    if any("drop" in key and isinstance(rate, float) and rate > 0 for key, rate in rates.items()):
        return True
    return any(
        (isinstance(part, nn.Dropout) and part.p > 0) or isinstance(part, _BatchNorm)
        for part in module.modules()
    )
