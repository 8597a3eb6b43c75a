"""Watches a trainer of any environment alike: processor seconds of a step and its parts, and resident memory.

No import of hf_vlm_rl, TRL or ms-swift. Every run trains on the same completions and the same adapter,
whatever was sampled, so that the norm of the gradients says whether two systems computed the same.
"""

import ctypes
import functools
import json
import re
import statistics
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from .setting import Setting

# Words of the tiny tokenizer that are neither special nor placeholders.
WORDS = 5, 390
SPREAD = 0.03


class Meter(TrainerCallback):
    """Measures one trainer from outside.

    Args:
        trainer: TRL's or ms-swift's GRPO trainer, with its adapter.
        side: Its name in the table.
        setting: What it trains.
        out: The file for the figures.
    """

    def __init__(self, trainer: Any, side: str, setting: Setting, out: str):
        self.side, self.setting, self.out = side, setting, out
        self.seconds: dict[str, float] = defaultdict(float)
        self.steps: list[dict[str, float]] = []
        self.norms: list[float] = []
        self.began, self.held = 0.0, 0.0
        same_adapter(trainer.model)
        base = trainer.model.get_base_model()
        base.generate = self._timed("rollout", self._same_words(base.generate))
        trainer.compute_loss = self._timed("update", trainer.compute_loss)
        trainer.accelerator.backward = self._timed("update", trainer.accelerator.backward)
        trainer.add_callback(self)

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args, **kwargs):
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] += time.process_time() - began

        return timed

    def _same_words(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(generate)
        def same(*args, **kwargs):
            made = generate(*args, **kwargs)
            ids = made if isinstance(made, torch.Tensor) else made.sequences
            length = self.setting.completion
            prompt = kwargs["input_ids"].shape[1]
            if ids.shape[1] != prompt + length:
                raise ValueError(
                    f"Got {ids.shape[1] - prompt} sampled tokens, expected {length} in each row."
                )
            draws = torch.Generator().manual_seed(len(self.steps))
            ids[:, -length:] = torch.randint(*WORDS, (len(ids), length), generator=draws)
            return made

        return same

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Memory counts from here on."""
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak of resident memory, see proc(5)
        self.held = _resident("VmRSS")
        self.began = time.process_time()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """A step is over, with everything that the trainer does beside."""
        now = time.process_time()
        self.steps.append({"step": now - self.began, **self.seconds})
        self.began = now
        self.seconds.clear()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """The norm of the gradients before they are clipped."""
        if logs and "grad_norm" in logs:
            self.norms.append(float(logs["grad_norm"]))

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Write the figures."""
        parts = {
            part: statistics.median(step.get(part, 0.0) for step in self.steps[1:])
            for part in ("step", "rollout", "update")
        }
        memory = {"above": _resident("VmHWM") - self.held, "peak": _resident("VmHWM")}
        about = {"side": self.side, "trl": version("trl"), "norm": self.norms[0] if self.norms else None}
        Path(self.out).write_text(json.dumps(about | parts | memory))


def same_adapter(model: torch.nn.Module) -> None:
    """Draw the adapter's weights by layer and matrix, whatever the modules around them are called.

    Raises:
        ValueError: If something else than matrices of decoder layers is trained.
    """
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        found = re.search(r"layers\.(\d+)\..*?(\w+)\.(lora_[AB])\.", name)
        if found is None or "visual" in name:
            raise ValueError(f"Got {name} as a trained parameter, expected LoRA of the decoder alone.")
        draws = torch.Generator().manual_seed(zlib.crc32(".".join(found.groups()).encode()))
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=draws) * SPREAD)


def _resident(name: str) -> float:
    """MB of this process: "VmRSS" resident now, "VmHWM" at the peak."""
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith(name)).split()[1]) * 1024 / 1e6
