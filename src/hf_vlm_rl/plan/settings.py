"""What is to be trained, and the settings that are tried for it, fewest compromises first."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Precision = Literal["bf16", "4bit", "fp32"]


@dataclass(frozen=True)
class Run:
    """A GRPO run, as far as its user has decided.

    Attributes:
        image: Width and height of an image in pixels.
        images: Images of a prompt, >= 0.
        text: Tokens of a prompt beside its images and the template, >= 0.
        completion: Longest completion in tokens, > 0.
        group: Completions of a prompt (`num_generations`), >= 2.
        rank: LoRA rank, > 0; None: all weights are trained, the vision tower aside.
        target: What LoRA adapts: "language", "language+projector" or "all".
        vision: Train the vision tower as well (without LoRA).
        beta: KL coefficient; above 0 and without LoRA, there is a reference model.
        gpus: Number of GPUs.
        sharding: "ddp": every GPU has everything; "zero3": DeepSpeed ZeRO-3 or FSDP.
        sharing: Rows share their prompts, as policies do by default.
    """

    image: tuple[int, int] = (448, 448)
    images: int = 1
    text: int = 64
    completion: int = 256
    group: int = 8
    rank: int | None = 16
    target: str = "language"
    vision: bool = False
    beta: float = 0.0
    gpus: int = 1
    sharding: Literal["ddp", "zero3"] = "ddp"
    sharing: bool = True


@dataclass(frozen=True)
class Settings:
    """How a run is fitted into memory.

    Attributes:
        precision: How weights are held; "4bit": the decoder by bitsandbytes, the rest in bf16.
        checkpointing: Recompute the decoder's layers in the backward pass.
        rows: Completions of a forward on each GPU (`per_device_train_batch_size`).
        accumulation: `gradient_accumulation_steps`.
        group: `num_generations`.
    """

    precision: Precision
    checkpointing: bool
    rows: int
    accumulation: int
    group: int


def candidates(run: Run, precisions: tuple[Precision, ...] | None = None) -> Iterator[Settings]:
    """Settings in order of preference, by default with bf16, and with 4bit if there is LoRA.

    Recomputing layers costs time and changes nothing, fewer rows a forward share their prompt less often,
    4-bit weights change the model, and a smaller group changes the algorithm.
    """
    # bitsandbytes' 4-bit weights cannot be sharded by ZeRO-3, nor trained themselves.
    quantised = run.rank is not None and run.sharding == "ddp"
    fitting: tuple[Precision, ...] = ("bf16", "4bit") if quantised else ("bf16",)
    tried = fitting if precisions is None else precisions
    groups = [run.group, *(group for group in (4, 2) if group < run.group)]
    for group in groups:
        for precision in tried:
            rows = max(group // run.gpus, 1)
            yield _settings(run, precision, False, rows, group)
            while rows:
                yield _settings(run, precision, True, rows, group)
                rows //= 2


def _settings(run: Run, precision: Precision, checkpointing: bool, rows: int, group: int) -> Settings:
    at_once = rows * run.gpus
    accumulation = math.lcm(at_once, group) // at_once  # TRL wants whole groups
    return Settings(precision, checkpointing, rows, accumulation, group)
