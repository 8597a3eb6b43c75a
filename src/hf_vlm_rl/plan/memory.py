"""Adds up what a run holds on each GPU, and finds the settings with the fewest compromises that fit."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from peft import get_peft_model
from tqdm.auto import tqdm

from ..loading.checkpoint import Checkpoint
from ..loading.meta import policy_on_meta
from ..processing.images.store import GIB, ImageStore
from .dry import Kernels
from .settings import Run, Settings
from .step import Rollout, make_prompt, rollout_bytes, update_bytes
from .weights import optimizer_bytes, parameter_counts, quantised_layers, trained, weight_bytes

# CUDA's context, its kernels and cuBLAS' workspaces: about 0.5 GiB on Ampere and Hopper.
CONTEXT = int(0.75 * GIB)
# The caching allocator hands out blocks; what is left over in them fits nothing else.
FRAGMENTATION = 0.05


@dataclass(frozen=True)
class Memory:
    """Bytes on each GPU.

    Attributes:
        weights: Part of the model to bytes; the adapter is one of the parts.
        gradients: Gradients of what is trained; with DDP over several GPUs, also their buckets.
        optimizer: The optimizer's state.
        reference: A reference model's weights.
        update: Peak of forward and backward above all that, gradients not counted again.
        rollout: Keys and values, and the peak of sampling.
        gathered: ZeRO-3: the layers that are whole at a time.
        prompt: Tokens of a prompt.
        image_tokens: Tokens of the prompt that its images take.
        parameters: Parameters of the model without adapters.
        active: Those that a token meets: fewer with experts. None: not known.
    """

    weights: dict[str, int] = field(hash=False)
    gradients: int
    optimizer: int
    reference: int
    update: int
    rollout: Rollout
    gathered: int
    prompt: int
    image_tokens: int
    parameters: int
    active: int | None

    @property
    def held(self) -> int:
        """What stays from step to step."""
        return sum(self.weights.values()) + self.optimizer + self.reference + self.gathered

    @property
    def overhead(self) -> int:
        """CUDA's context, and memory lost between blocks."""
        return CONTEXT + int(FRAGMENTATION * self._phase)

    @property
    def total(self) -> int:
        """Needed on each GPU: rollout and update follow each other."""
        return self.held + self._phase + self.overhead

    @property
    def _phase(self) -> int:
        return max(self.gradients + self.update, self.rollout.peak)


def estimate(checkpoint: Checkpoint, run: Run, settings: Settings) -> Memory:
    """What a run of a checkpoint's model needs with some settings."""
    dtype = torch.float32 if settings.precision == "fp32" else torch.bfloat16
    kernels = Kernels(torch.bfloat16 if dtype is torch.bfloat16 else None)
    with tempfile.TemporaryDirectory() as folder:
        policy = policy_on_meta(checkpoint, dtype, ImageStore(folder))
        counts = parameter_counts(policy, policy.family.language)
        policy.base_model.sharing.mode = "auto" if run.sharing else False
        prompt = make_prompt(policy.processing_class, run)
        rows = settings.rows * settings.accumulation
        prompts = max(-(-rows // settings.group), 1)
        rollout = rollout_bytes(policy, prompt, prompts, rows, run.completion)
        model = _as_trained(policy, run, settings, kernels)
        peak = update_bytes(model, kernels, prompt.rows(settings.rows, run.completion), run.completion)
    four_bit = settings.precision == "4bit"
    weights = weight_bytes(model, four_bit)
    gradients = sum(parameter.nbytes for parameter in trained(model))
    # The sum over several micro-batches is there from the start.
    update = peak if settings.accumulation > 1 else max(peak - gradients, 0)
    if four_bit:  # a layer is made whole for its product
        update += max(2 * weight.numel() for weight in quantised_layers(policy).values())
    reference = sum(weights.values()) if run.rank is None and run.beta > 0 else 0
    optimizer = optimizer_bytes(model)
    gathered = 0
    if run.gpus > 1 and run.sharding == "ddp":
        gradients *= 2
    elif run.gpus > 1:
        layers = policy.get_submodule(policy.family.language).layers
        largest = max(sum(parameter.nbytes for parameter in layer.parameters()) for layer in layers)
        gathered = max(2 * largest, policy.get_input_embeddings().weight.nbytes)
        weights = {part: size // run.gpus for part, size in weights.items()}
        gradients, optimizer, reference = (n // run.gpus for n in (gradients, optimizer, reference))
    return Memory(
        weights,
        gradients,
        optimizer,
        reference,
        update,
        rollout,
        gathered,
        prompt.tokens,
        prompt.image_tokens,
        *counts,
    )


@dataclass(frozen=True)
class Plan:
    """What was tried, in order, and what it needs; the last one fits into `capacity` bytes, if any does."""

    tried: tuple[tuple[Settings, Memory], ...]
    capacity: int

    @property
    def fits(self) -> bool:
        """Whether there are settings that fit."""
        return self.tried[-1][1].total <= self.capacity

    @property
    def best(self) -> tuple[Settings, Memory]:
        """Those that fit; if none do, those that need the least."""
        return self.tried[-1] if self.fits else min(self.tried, key=lambda pair: pair[1].total)


def search(checkpoint: Checkpoint, run: Run, capacity: int, tries: Iterable[Settings]) -> Plan:
    """Try settings, at least one, in order until some fit into `capacity` bytes of each GPU."""
    tried = []
    # Shown in a terminal alone: large models take minutes.
    with tqdm(tries, "trying settings", unit=" settings", leave=False, disable=None) as bar:
        for settings in bar:
            tried.append((settings, estimate(checkpoint, run, settings)))
            if tried[-1][1].total <= capacity:
                break
    return Plan(tuple(tried), capacity)


def _as_trained(policy: Any, run: Run, settings: Settings, kernels: Kernels) -> Any:
    """A policy as the trainer trains it: adapter, frozen parts, gradient checkpointing."""
    if run.rank is None:
        policy.requires_grad_(True)
        policy.freeze(vision=not run.vision, projector=False)
        model = policy
    else:
        # TRL: under ZeRO-3 adapters have the weights' dtype, and bfloat16 on 4-bit weights.
        single = run.sharding == "ddp" and settings.precision != "4bit"
        config = policy.lora_config(r=run.rank, target=run.target, experts=False)
        model = get_peft_model(policy, config, autocast_adapter_dtype=single)
    frozen = not run.vision and (model is policy or run.target != "all")
    if frozen and not policy.family.native_inputs:
        # With real weights the features of a frozen tower are computed once and kept, without a graph.
        policy.base_model.get_image_features = torch.no_grad()(policy.base_model.get_image_features)
    model.train()
    if settings.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kernels.checkpointing())
        if model is not policy:
            model.enable_input_require_grads()
    return model
