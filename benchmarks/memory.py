"""Memory of an update in stock GRPO on a policy: what `hf_vlm_rl.plan` says against what is measured.

`python -m benchmarks.memory` prints a line per shape: the tensors alive at the peak, what the plan says, and
the peak outside: resident memory on a CPU (with what kernels need inside and the C allocator keeps), the CUDA
allocator's with `--device cuda`.

On a CPU, run it with MALLOC_MMAP_THRESHOLD_=65536 MALLOC_TRIM_THRESHOLD_=65536: glibc otherwise keeps what
was freed, and resident memory is up to four times that of the tensors.
"""

import argparse
import itertools
import tempfile
from typing import Any

import torch

from hf_vlm_rl.loading.checkpoint import Checkpoint
from hf_vlm_rl.plan.dry import LiveBytes
from hf_vlm_rl.plan.memory import estimate
from hf_vlm_rl.plan.settings import Run, Settings
from tests.tiny import recipe

from .models import TILING, _stretch, image, pair
from .probe import Probe
from .sizes import SIZES
from .trainers import Shape, _forget, common, grpo

COLUMNS = [
    "model",
    "rows",
    "tiles",
    "completion",
    "checkpointing",
    "sharing",
    "MiB of tensors",
    "MiB planned",
    "planned / tensors",
    "MiB outside",
]


def planned(name: str, shape: Shape, checkpointing: bool, sharing: bool) -> float:
    """MiB of an update by plan."""
    size = SIZES[name]
    made = recipe(size.family)
    _stretch(made.config, made.processor, size, shape.tiles)
    precision = "bf16" if size.dtype is torch.bfloat16 else "fp32"
    run = Run(
        image=image(name, shape.tiles)[0].size,
        text=0,
        completion=shape.completion,
        group=shape.group,
        sharing=sharing,
    )
    settings = Settings(precision, checkpointing, shape.group, 1, shape.group)
    memory = estimate(Checkpoint(name, made.config, made.processor), run, settings)
    return (memory.gradients + memory.update) / 2**20


def measured(name: str, shape: Shape, checkpointing: bool, sharing: bool, device: str) -> tuple[float, float]:
    """MiB of an update: of its tensors in the second step, and as the system has it in the third."""
    _, (model, processing) = pair(name, shape.tiles, False, device)
    model.get_base_model().base_model.sharing.mode = "auto" if sharing else False
    live = LiveBytes()
    with tempfile.TemporaryDirectory() as out:
        options: dict[str, Any] = common(out, device, SIZES[name].dtype)
        options |= {"gradient_checkpointing": checkpointing}
        trainer = grpo(model, processing, name, shape, options)
        probe = Probe(trainer, processing)
        timed_loss, timed_backward = trainer.compute_loss, trainer.accelerator.backward
        for step in range(3):
            probe.weigh = step == 2
            if step == 1:
                _count(trainer, live)
            _forget(probe)
            trainer.train()
            trainer.compute_loss, trainer.accelerator.backward = timed_loss, timed_backward
    return live.peak / 2**20, probe.peak / 2**20


def _count(trainer: Any, live: LiveBytes) -> None:
    loss, backward = trainer.compute_loss, trainer.accelerator.backward

    def counted_loss(*args: Any, **kwargs: Any) -> Any:
        live.__enter__()
        return loss(*args, **kwargs)

    def counted_backward(*args: Any, **kwargs: Any) -> None:
        backward(*args, **kwargs)
        live.__exit__(None, None, None)

    trainer.compute_loss, trainer.accelerator.backward = counted_loss, counted_backward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=SIZES, default=["internvl"])
    parser.add_argument("--group", nargs="+", type=int, default=[8])
    parser.add_argument("--tiles", nargs="+", type=int, default=[7], choices=list(TILING))
    parser.add_argument("--completion", nargs="+", type=int, default=[32])
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    grid = (given.model, given.group, given.tiles, given.completion, (False, True), (True, False))
    for name, group, tiles, completion, checkpointing, sharing in itertools.product(*grid):
        shape = Shape("grpo", group, tiles, completion, "frozen")
        tensors, resident = measured(name, shape, checkpointing, sharing, given.device)
        said = planned(name, shape, checkpointing, sharing)
        cells = [
            name,
            group,
            tiles,
            completion,
            checkpointing,
            sharing,
            f"{tensors:.0f}",
            f"{said:.0f}",
            f"{said / tensors:.2f}",
        ]
        cells.append(f"{resident:.0f}")
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
