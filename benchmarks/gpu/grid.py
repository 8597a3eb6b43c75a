"""Steps of stock TRL on the stock model and on the policy, in one process and in turns."""

import gc
import time
from dataclasses import replace
from typing import Any

import torch
import trl

from ..flops import peak_flops
from ..sizes import SIZES
from ..trainers import Measured, Shape, TimeUp, measure
from .report import Part, reason, table

REPEATS = 3
# To build two models and take three turns, at the very least.
LEAST_SECONDS = 15
COLUMNS = (
    "model", "trainer", "rows", "tiles", "prompt", "completion", "checkpointing", "side", "rollout s",
    "update s", "**step s**", "rollouts/s", "tokens/s sampled", "unique tokens/s updated", "MFU unique",
    "MFU own", "peak GiB",
)  # fmt: skip
RATIOS = (
    "model", "trainer", "rows", "tiles", "completion", "token ratio", "preprocess", "rollout", "update",
    "**step**", "memory policy / stock", "log-probs differ", "loss differs", "gradients differ", "turns",
)  # fmt: skip
NOTE = """\
Random weights in true shapes, bfloat16, LoRA of rank 16 on the decoder, the tower frozen, the same weights
and samples on both sides. Medians of up to {repeats} turns; images are processed and encoded anew in each.
Peak: of forward and backward above what was held before (allocated memory). Unique tokens: the prompt once
and all completions. MFU: the floating-point operations of decoder and head (`benchmarks/flops.py` has the
formula), on unique tokens for both sides or on the tokens of a side's own forward, over the update's seconds
and {peak}. "rollouts/s": rows of a whole step over its seconds.
"""
# The most telling shape of each model first; later ones run if there is time.
SHAPES: dict[str, tuple[Shape, ...]] = {
    "qwen2_5_vl-3b": (
        Shape("grpo", 8, 7, 128),
        Shape("grpo", 8, 1, 128),
        Shape("dpo", 8, 7, 128),
        Shape("grpo", 16, 7, 64, checkpointing=True),
    ),
    "internvl-8b": (
        Shape("grpo", 8, 7, 128, checkpointing=True),
        Shape("grpo", 8, 13, 64, checkpointing=True),
    ),
    "qwen3_5-4b": (Shape("grpo", 8, 7, 32, checkpointing=True),),
}
TINY = {name: f"tiny-{SIZES[name].family}" for name in SHAPES}


def grid(part: Part, name: str) -> None:
    """Write the tables of one model's shapes."""
    shapes = SHAPES[name]
    dtype = SIZES[name].dtype
    if part.tiny:
        name, dtype = TINY[name], torch.float32
        shapes = tuple(replace(shape, group=4, tiles=3, completion=4) for shape in shapes[:3:2])
    peak, source = peak_flops(part.device, dtype, 256 if part.tiny else 8192)
    part.write(f"TRL {trl.__version__}. " + NOTE.format(repeats=REPEATS, peak=source))
    done: list[Measured] = []
    for number, shape in enumerate(shapes, start=1):
        # The first has most of the time, unless it is the only one.
        seconds = part.seconds_left() * (1.0 if number == len(shapes) else 0.6)
        if seconds < LEAST_SECONDS and not part.tiny:
            part.write(f"\nNo time left for {shape}.\n")
            continue
        try:
            done.append(_measure(part, name, shape, time.monotonic() + seconds))
            _write(part, done[-1], peak, first=len(done) == 1)
        except TimeUp as error:
            part.write(f"\nNo time left for {shape}: {error}.\n")
        except Exception as error:
            part.failed(error)
        _free()
    if done:
        part.write("\nRatios stock / policy, and what the policy says of sharing:\n")
        part.write(table(RATIOS, head=True))
        for measured in done:
            part.write(table(_ratios(measured)))
        for measured in done:
            report = {key: value for key, value in measured.report.items() if value}
            part.write(f"\n`{_label(measured)}`: `{report}`")


def _measure(part: Part, name: str, shape: Shape, deadline: float) -> Measured:
    """A shape, or the same with gradient checkpointing where its activations do not fit."""
    try:
        return measure(name, shape, REPEATS, part.device, deadline, same_weights=True)
    except torch.OutOfMemoryError as error:
        if shape.checkpointing:
            raise
        part.write(f"\n{shape} does not fit ({reason(error)}): again with gradient checkpointing.\n")
    _free()
    return measure(
        name, replace(shape, checkpointing=True), REPEATS, part.device, deadline, same_weights=True
    )


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _write(part: Part, measured: Measured, peak: float, first: bool) -> None:
    if first:
        part.write(table(COLUMNS, head=True))
    for side, name in enumerate(("stock", "policy")):
        part.write(table(_figures(measured, side, name, peak)))


def _figures(measured: Measured, side: int, name: str, peak: float) -> tuple[Any, ...]:
    shape = measured.shape
    rollout, update, step = (
        measured.taken(*phases)[side] for phases in (["rollout"], ["log-probs", "backward"], ["step"])
    )
    rows, sampled = shape.group, shape.group * shape.completion
    unique = measured.prompt + sampled
    shares = measured.token_ratio > 1
    once, repeated = measured.flops
    own = once if side == 1 and shares else repeated
    grpo = shape.trainer == "grpo"
    return (
        measured.name, shape.trainer, rows, shape.tiles, measured.prompt, shape.completion,
        "yes" if shape.checkpointing else "no", name,
        f"{rollout:.2f}" if grpo else "-", f"{update:.2f}", f"**{step:.2f}**", f"{rows / step:.2f}",
        f"{sampled / rollout:.0f}" if grpo else "-", f"{unique / update:.0f}",
        f"{once / update / peak:.1%}", f"{own / update / peak:.1%}",
        f"{measured.peaks[side] / 2**30:.2f}",
    )  # fmt: skip


def _ratios(measured: Measured) -> tuple[Any, ...]:
    shape = measured.shape
    differences = ("-" if value is None else f"{value:.0e}" for value in measured.differences)
    return (
        measured.name, shape.trainer, shape.group, shape.tiles, shape.completion,
        f"{measured.token_ratio:.2f}", measured.ratio("preprocess"), measured.ratio("rollout"),
        measured.ratio("log-probs", "backward"), f"**{measured.ratio('step')}**",
        f"{measured.peaks[1] / measured.peaks[0]:.2f}", *differences, measured.turns,
    )  # fmt: skip


def _label(measured: Measured) -> str:
    shape = measured.shape
    return f"{measured.name} {shape.trainer} {shape.group} x {shape.tiles} tiles + {shape.completion}"
