"""From encoded prompts to completions, in batches of rows of similar length."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..processing.padding import pad_batch
from ..processing.trainer_rows import Encoded

# A checkpoint's own sampling settings would be warned about, and mean nothing, in greedy decoding.
NO_SAMPLING = {"temperature": None, "top_p": None, "top_k": None}


@dataclass(frozen=True)
class Completion:
    """One completion of an encoded prompt, before any reward has seen it.

    `text` has no special tokens, `ids` have the end of the turn. A `clipped` one reached the longest length,
    so that it has neither an end of turn nor a stop string.
    """

    text: str
    ids: list[int]
    clipped: bool


def complete(
    policy: Any, prompts: Sequence[Encoded], copies: int, batch_size: int, options: Mapping[str, Any]
) -> list[list[Completion]]:
    """Generate `copies` completions of each of N encoded prompts, the longest prompts first.

    The policy, or the `PeftModel` around one, is in evaluation mode. The options are for `generate`.
    """
    # The longest first: what does not fit into memory fails at once.
    order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row].input_ids))
    queue = [row for row in order for _ in range(copies)]
    done: list[list[Completion]] = [[] for _ in prompts]
    for start in range(0, len(queue), batch_size):
        rows = queue[start : start + batch_size]
        for row, completion in zip(
            rows, _batch(policy, [prompts[row] for row in rows], options), strict=True
        ):
            done[row].append(completion)
    return done


def warn_of_equal_samples(policy: Any, options: Mapping[str, Any]) -> None:
    """Warn if several completions of a prompt will hardly differ, as by the checkpoint of Qwen2-VL."""
    used = _used(policy, options, NO_SAMPLING)
    cold = any(used[name] is not None and used[name] < 0.1 for name in ("temperature", "top_p"))
    if cold or used["top_k"] == 1:
        warnings.warn(
            f"Completions are sampled with {used}, so those of one prompt hardly differ. Where the "
            "checkpoint says so, pass what GRPOTrainer samples with: temperature=1.0, top_p=1.0, top_k=0.",
            stacklevel=3,
        )


def _used(policy: Any, options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Settings of `generate`: what was passed, or else what the generation config says."""
    config = options.get("generation_config") or policy.generation_config
    return {name: options.get(name, getattr(config, name)) for name in names}


@contextmanager
def seeded(policy: torch.nn.Module, seed: int) -> Iterator[None]:
    """Torch's random numbers begin at `seed`; afterwards they go on as if nothing had been."""
    used = {parameter.device for parameter in policy.parameters()} - {torch.device("cpu")}
    kind = next((device.type for device in used), "cuda")
    with torch.random.fork_rng(devices=[device.index or 0 for device in used], device_type=kind):
        torch.manual_seed(seed)
        yield


def _batch(policy: Any, prompts: list[Encoded], options: Mapping[str, Any]) -> list[Completion]:
    processing = policy.processing_class
    ids = [prompt.input_ids for prompt in prompts]
    batch = {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}
    inputs = pad_batch(
        processing.tokenizer, batch, None, padding=True, padding_side="left", return_tensors="pt"
    )
    tickets = [prompt.tickets for prompt in prompts if prompt.tickets is not None]
    if tickets:
        inputs["pixel_values"] = torch.cat(tickets)
        inputs["image_grid_thw"] = torch.ones(len(inputs["pixel_values"]), 3, dtype=torch.int64)
    length = inputs["input_ids"].shape[1]
    output = policy.generate(**inputs.to(policy.device), **options)
    sequences = output if isinstance(output, torch.Tensor) else output.sequences
    used = _used(policy, options, ("eos_token_id", "pad_token_id", "stop_strings"))
    ends = _listed(processing.eos_token_id if used["eos_token_id"] is None else used["eos_token_id"])
    stops = _listed(used["stop_strings"])
    completions = [_cut(row, ends, used["pad_token_id"]) for row in sequences[:, length:].tolist()]
    texts = processing.batch_decode([ids for ids, _ in completions], skip_special_tokens=True)
    return [
        Completion(text, ids, longest and not any(stop in text for stop in stops))
        for text, (ids, longest) in zip(texts, completions, strict=True)
    ]


def _listed(value: Any) -> list:
    return [] if value is None else list(value) if isinstance(value, list | tuple | set) else [value]


def _cut(ids: list[int], ends: list[int], pad: int | None) -> tuple[list[int], bool]:
    """The ids up to an end of turn, and whether there was neither that nor padding (behind a stop string)."""
    end = next((position for position, token in enumerate(ids) if token in ends), None)
    if end is not None:
        return ids[: end + 1], False
    length = len(ids)
    while length and ids[length - 1] == pad:
        length -= 1
    return ids[:length], length == len(ids)
