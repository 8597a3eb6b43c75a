"""What a card knows without being told: the adapter, the base it belongs to, and the run that made it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BaseFacts:
    """The model that the adapter changes.

    Attributes:
        model_id: Hub id; None for a checkpoint that is on the Hub under no known id.
        revision: Commit that the weights came from, if known.
        license: The license on the base's own card.
        license_name: For `license: other`.
        license_link: For `license: other`.
        stock: transformers loads it; False for original formats that this package reads.
        quantization: How its weights were held while training, e.g. "4-bit nf4".
    """

    model_id: str | None = None
    revision: str | None = None
    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None
    stock: bool = True
    quantization: str | None = None


@dataclass(frozen=True)
class PartFacts:
    """One part of the model: "vision tower", "projector" or "decoder".

    `parameters` are counted without the adapter's. `trained` is "adapter", "in full" or "frozen".
    """

    name: str
    parameters: int
    trained: str


@dataclass(frozen=True)
class AdapterFacts:
    """The adapter, as saved.

    Attributes:
        kind: PEFT's type, e.g. "LORA".
        settings: Rank, alpha, dropout and variants, in display order.
        targets: Name of a kind of layer to the number of layers with an adapter.
        parameters: Number of values in the saved file.
        total: Parameters of the base; None if the model was not at hand.
        parts: The parts of the model, if its family is known.
    """

    kind: str
    settings: Mapping[str, Any]
    targets: Mapping[str, int]
    parameters: int
    total: int | None = None
    parts: Sequence[PartFacts] = ()

    @property
    def name(self) -> str:
        """The kind as people write it."""
        return "LoRA" if self.kind == "LORA" else self.kind


@dataclass(frozen=True)
class Curve:
    """A metric of the trainer's log over training, as (step, value) by step."""

    metric: str
    points: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class RunFacts:
    """The run that made the adapter.

    Attributes:
        trainer: Class name of the trainer.
        method: Key of `methods.METHODS`; None for a trainer of another method.
        steps: Optimiser steps.
        seconds: Run time of training, if the trainer logged it.
        hardware: Devices, without the machine's name.
        rewards: (name, weight) of the reward functions.
        data: Name of a split to its number of rows; None if it cannot be counted (streaming).
        hyperparameters: Training arguments that differ from their defaults, and the main ones.
        curve: The metric to look at, if it was logged.
    """

    trainer: str
    method: str | None
    steps: int
    seconds: float | None = None
    hardware: str | None = None
    rewards: Sequence[tuple[str, float]] = ()
    data: Mapping[str, int | None] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    curve: Curve | None = None


@dataclass(frozen=True)
class StageFacts:
    """An earlier training of the same adapter, as far as it is known; None is what nobody wrote down."""

    trainer: str | None = None
    method: str | None = None
    steps: int | None = None


@dataclass(frozen=True)
class CardFacts:
    """Everything the run fills in.

    `run` is None for an adapter that is pushed from a folder. `stages` are earlier trainings, the first one
    first.
    """

    base: BaseFacts
    adapter: AdapterFacts
    run: RunFacts | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    stages: Sequence[StageFacts] = ()
