"""Image features of a frozen vision tower, kept from one forward to the next.

A training step needs the features of an image in the rollout, in the old and reference log-probs and
in every update pass. While nothing that made them has changed, they are computed once.
"""

import operator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from ..processing.images.lru import ByteBoundedCache

LIMIT_BYTES = 2 << 30

# What PEFT calls the base's own layer and module, where an adapter comes in its place.
ADAPTED = frozenset({"base_layer", "original_module"})


@dataclass(frozen=True)
class Features:
    """One image's features.

    Attributes:
        pooled: As the model returns them for this image: (pieces, tokens, H) or (tokens, H).
        deep: Further features for the first decoder layers (Qwen3-VL), each (tokens, H).
    """

    pooled: torch.Tensor
    deep: tuple[torch.Tensor, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.pooled.nbytes + sum(tensor.nbytes for tensor in self.deep)


class FeatureCache:
    """Least-recently-used cache from ticket to `Features`, valid for one state of the tower.

    Args:
        limit_bytes: Bound of the features held, on the model's device.

    Attributes:
        encoded: Images that went through the tower so far.
        reused: Images that did not have to: repeats within a forward and hits of the cache.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES):
        self.encoded = 0
        self.reused = 0
        self._state: tuple | None = None
        self._features: ByteBoundedCache[int, Features] = ByteBoundedCache(
            limit_bytes, operator.attrgetter("nbytes")
        )

    def __deepcopy__(self, memo: dict) -> Self:
        # The copy's weights change on their own.
        return type(self)(self.limit_bytes)

    def __getstate__(self) -> dict:
        return {"limit_bytes": self.limit_bytes}

    def __setstate__(self, state: dict) -> None:
        self.__init__(**state)

    @property
    def limit_bytes(self) -> int:
        """Bound of the features held, in bytes; 0 switches the cache off."""
        return self._features.limit_bytes

    @limit_bytes.setter
    def limit_bytes(self, limit: int) -> None:
        self._features.limit_bytes = limit

    @property
    def nbytes(self) -> int:
        """Size of the features held, in bytes."""
        return self._features.nbytes

    def clear(self) -> None:
        """Drop all features; `encoded` and `reused` stay."""
        self._features.clear()

    def lookup(self, state: tuple | None, tickets: list[int]) -> dict[int, Features]:
        """The entries of `tickets` that are valid in `state`; another state empties the cache."""
        if state != self._state or state is None:
            self.clear()
            self._state = state
        held = {ticket: self._features.get(ticket) for ticket in tickets}
        return {ticket: features for ticket, features in held.items() if features is not None}

    def store(self, ticket: int, features: Features) -> None:
        """Keep an image's features for as long as the state of the last `lookup` holds."""
        if self._state is None or features.nbytes > self.limit_bytes:
            return
        # A copy: a view would keep the features of its whole batch alive.
        kept = Features(features.pooled.clone(), tuple(tensor.clone() for tensor in features.deep))
        self._features.put(ticket, kept)


def frozen_state(backbone: nn.Module, language: str) -> tuple | None:
    """What the features of a frozen tower depend on; None if they must not be kept.

    They are not kept if any part of the backbone other than the decoder is trained, carries an
    adapter (which can be switched off), or drops activations at random.

    Args:
        backbone: The multimodal backbone.
        language: Name of its text decoder.

    Returns:
        Address and version counter of every parameter (any in-place change raises the counter),
        dtype, device and autocast. Equal states give equal features.
    """
    if torch.is_inference_mode_enabled():  # its tensors cannot take part in a later backward
        return None
    versions: list[tuple[int, int]] = []
    for name, module in backbone.named_children():
        if name != language:
            if module.training and _is_random(module):
                return None
            if not _add_versions(module.named_parameters(), versions):
                return None
    if not _add_versions(backbone.named_parameters(recurse=False), versions):
        return None
    kind = backbone.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return (backbone.dtype, backbone.device, autocast, tuple(versions))


def _add_versions(parameters: Any, versions: list[tuple[int, int]]) -> bool:
    for name, parameter in parameters:
        if parameter.requires_grad or parameter.is_inference() or not ADAPTED.isdisjoint(name.split(".")):
            return False
        versions.append((parameter.data_ptr(), parameter._version))
    return True


def _is_random(module: nn.Module) -> bool:
    config = getattr(module, "config", None)
    rates = config.to_dict() if config is not None else {}
    if any("drop" in key and isinstance(rate, float) and rate > 0 for key, rate in rates.items()):
        return True
    return any(isinstance(part, nn.Dropout) and part.p > 0 for part in module.modules())
