"""Whether a frozen vision tower still makes the features that it made before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from transformers import PreTrainedConfig

from ..foreign_hooks import foreign_forward, foreign_hook

# PEFT's names for the original layer or module inside the adapter that replaces it.
ADAPTED = frozenset({"base_layer", "original_module"})

# Attributes of modules that change no feature: torch's bookkeeping (parameters and hooks are compared
# separately), and what transformers and timm set between a rollout and its update for gradient checkpointing.
BOOKKEEPING = frozenset(vars(nn.Module())) | {
    "_gradient_checkpointing_func",
    "_output_capturing_hooks_installed",
    "grad_checkpointing",
    "gradient_checkpointing",
}

# Types that are compared by value; any other object must be the same object as before.
PLAIN = (str, int, float, complex, bool, bytes, type(None), torch.dtype, torch.device)

# A tensor's bytes are read as one of these integers and summed. The widest come first: they are fewest.
WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


@dataclass(frozen=True, eq=False)
class TowerState:
    """What the features of a frozen tower depend on.

    Attributes:
        facts: Compared by value: versions of the tensors, settings, dtype, device.
        objects: Compared by identity: types and forwards of modules, functions among their attributes.
        sums: For each device, the sums of each tensor's bytes over its rows and over its columns. Edits of
            `parameter.data` change no version, but an edit of a single element changes a sum.
    """

    facts: tuple
    objects: tuple
    sums: tuple[torch.Tensor, ...]

    def equals(self, other: "TowerState | None") -> bool:
        """Whether the tower makes the same features in both states."""
        if other is None or self.facts != other.facts:
            return False
        if len(self.objects) != len(other.objects) or len(self.sums) != len(other.sums):
            return False
        return all(mine is theirs for mine, theirs in zip(self.objects, other.objects, strict=True)) and all(
            torch.equal(mine, theirs) for mine, theirs in zip(self.sums, other.sums, strict=True)
        )


def frozen_state(backbone: Any, language: str, how: tuple = ()) -> TowerState | None:
    """What the features of a frozen tower depend on; None if they must not be kept.

    They are not kept if any part of the backbone other than the decoder is trained, carries an adapter (which
    can be switched off), drops activations at random, runs a hook or a forward of somebody else, or is on the
    device "meta" between its calls. `how` has comparable settings outside the backbone that the features
    depend on, `language` the name of its text decoder.
    """
    if torch.is_inference_mode_enabled():  # features made in it cannot take part in a later backward
        return None
    named = list(backbone.named_parameters(recurse=False)) + list(backbone.named_buffers(recurse=False))
    modules: list[nn.Module] = [backbone]
    for name, module in backbone.named_children():
        if name == language:
            continue
        if (module.training and _is_random(module)) or foreign_hook(module) or foreign_forward(module):
            return None
        named += [*module.named_parameters(), *module.named_buffers()]
        modules += module.modules()
    if any(not ADAPTED.isdisjoint(name.split(".")) for name, _ in named):
        return None
    tensors = [tensor for _, tensor in named]
    values, objects = _attributes(modules, backbone.config, tensors)
    if any(tensor.requires_grad or tensor.is_inference() or tensor.is_meta for tensor in tensors):
        return None
    kind = backbone.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    # `_version` is public in effect: autograd's documentation explains it, and nothing else tells.
    versions = tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)
    facts = (backbone.dtype, backbone.device, autocast, versions, values, how)
    return TowerState(facts, objects, _sums(tensors))


def _attributes(
    modules: Sequence[nn.Module], config: PreTrainedConfig, tensors: list[torch.Tensor]
) -> tuple[tuple, tuple]:
    """Settings of modules and of their configs: values, and objects. Their tensors go into `tensors`."""
    values: list[Any] = [len(modules)]
    objects: list[Any] = []
    configs = {id(config): config}

    def note(value: Any) -> None:
        if isinstance(value, PLAIN):
            values.append(repr(value))  # not the value: nan is not equal to itself
        elif isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, PreTrainedConfig):
            configs[id(value)] = value
            values.append(id(value))
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            values.append((type(value), len(value)))
            for item in value.items() if isinstance(value, Mapping) else value:
                note(item)
        else:
            objects.append(value)

    for module in modules:
        objects += [type(module), type(module).forward]
        for name, value in vars(module).items():
            if name not in BOOKKEEPING:
                values.append(name)
                note(value)
    values += [settings_of(each, config.get_text_config()) for each in configs.values()]
    return tuple(values), tuple(objects)


def settings_of(config: PreTrainedConfig, decoder: PreTrainedConfig) -> tuple:
    """The values of a config and of the configs inside it, the decoder's aside, comparable."""
    values: list[tuple[str, Any]] = []
    for name, value in vars(config).items():
        if not isinstance(value, PreTrainedConfig):
            values.append((name, repr(value)))
        elif value is not decoder:
            values.append((name, settings_of(value, decoder)))
    return tuple(values)


@torch.no_grad()
def _sums(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The sums of each tensor's bytes over its rows and columns, without waiting for a device."""
    # `equals` waits for the device at each tensor, so all sums of a device go into one.
    on_device: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            table = tensor.detach().contiguous().reshape(len(tensor) if tensor.ndim else 1, -1)
            words = table.view(_word(table))
            # Integers wrap around and lose nothing, so that the smallest change is seen.
            sums = [words.sum(dim, dtype=torch.int64) for dim in range(2)]
            on_device.setdefault(tensor.device, []).extend(sums)
    return tuple(torch.cat(sums) for sums in on_device.values())


def _word(table: torch.Tensor) -> torch.dtype:
    """The widest integers whose size divides a row of a table (rows, columns) and its offset in memory."""
    size = table.element_size()
    places = (table.shape[1] * size, table.storage_offset() * size)
    return next(word for word in WORDS if all(place % word.itemsize == 0 for place in places))


def _is_random(module: nn.Module) -> bool:
    """Whether a module in training mode gives an image other features at each call, or in another batch."""
    # Projectors are plain modules without a config.
    config = getattr(module, "config", None)
    rates = config.to_dict() if config is not None else {}
    if any("drop" in key and isinstance(rate, float) and rate > 0 for key, rate in rates.items()):
        return True
    return any(
        (isinstance(part, nn.Dropout) and part.p > 0) or isinstance(part, _BatchNorm)
        for part in module.modules()
    )
