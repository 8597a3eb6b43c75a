"""Watches a stock trainer's steps from outside: seconds and bytes per phase, and what was computed.

On a CPU, seconds are those that the processor spent on this process, whatever else the machine does.

Everything hangs on the objects of one trainer (callbacks, hooks, instance attributes); TRL is as shipped.
"""

import ctypes
import functools
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from hf_vlm_rl.plan.dry import LiveBytes

from .lengths import EndAt

PHASES = ("preprocess", "rollout", "log-probs", "backward")


class Probe(TrainerCallback):
    """Measures one trainer.

    Args:
        trainer: Of TRL; its model's learning rate should be 0, so that steps repeat.
        processor: The native processor, or a processing class.

    Attributes:
        seconds: Of each phase and of the whole "step", in the last step.
        peak: Bytes at the peak of forward and backward above what was held before, if asked for; of the
            largest micro-batch.
        tensors: Whether these bytes are those of tensors, instead of what the system gave for them.
        loss: Of the last step.
        gradients: Of the last step, all in one vector, on the CPU.
        logits: What the model gave in the last forward with gradients; None if it gave none.
        real: (B, C) of the last forward, the tokens of completions; None where the trainer names none.
        sampled: What `generate` gave last, and the state of the random numbers after it.
        ends: Tokens of each completion, the last of which is the end token; None: as they come.
        replay: Another probe's `sampled`, to be given instead of sampling, if not None.
    """

    def __init__(self, trainer: Any, processor: Any):
        self.trainer = trainer
        self.seconds: dict[str, float] = defaultdict(float)
        self.weigh, self.tensors = False, False
        self.peak = 0
        self._live = LiveBytes()
        self.loss, self.gradients, self.logits, self.real = None, None, None, None
        self.sampled, self.replay = None, None
        self.ends: torch.Tensor | None = None
        self._began, self._held = 0.0, 0
        model = trainer.accelerator.unwrap_model(trainer.model)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._device = self._parameters[0].device
        base = self._base = model.get_base_model()
        base.generate = self._timed("rollout", self._replayable(base.generate))
        # A processing class's own gives tickets.
        images = getattr(processor, "native_image_processor", None) or processor.image_processor
        images.preprocess = self._timed("preprocess", images.preprocess)
        trainer.compute_loss = self._forward(trainer.compute_loss)
        trainer.accelerator.backward = self._backward(trainer.accelerator.backward)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(self)

    def _replayable(self, generate: Any) -> Any:
        @functools.wraps(generate)
        def replayable(*args, **kwargs):
            if self.replay is None:
                self.sampled = self._ending(generate, *args, **kwargs), torch.get_rng_state()
                return self.sampled[0]
            torch.set_rng_state(self.replay[1])  # TRL shuffles the rows next
            return self.replay[0]

        return replayable

    def _ending(self, generate: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.ends is None:
            return generate(*args, **kwargs)
        sampled = generate(*args, **kwargs, stopping_criteria=[EndAt(self.ends)])
        prompt = kwargs["input_ids"].shape[1]
        end = kwargs["generation_config"].eos_token_id
        rows = torch.arange(len(sampled), device=sampled.device)
        # Finished by a criterion and not by this token, so that rows end where they shall.
        sampled[rows, prompt + self.ends.to(sampled.device) - 1] = end[0] if isinstance(end, list) else end
        return sampled

    def _timed(self, phase: str, function: Any) -> Any:
        @functools.wraps(function)
        def timed(*args, **kwargs):
            begin = self._now()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[phase] += self._now() - begin

        return timed

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def _forward(self, compute_loss: Any) -> Any:
        timed = self._timed("log-probs", compute_loss)

        @functools.wraps(compute_loss)
        def forward(*args, **kwargs):
            inputs = kwargs.get("inputs", args[-1])  # of compute_loss(model, inputs, ...)
            self.real = inputs.get("completion_mask") if isinstance(inputs, Mapping) else None
            if not self.weigh:
                return timed(*args, **kwargs)
            self.logits = None  # those of an earlier forward
            self._start()
            # No hook is on the model while it samples: finished rows leave no batch that a hook looks at.
            watch = self._base.register_forward_hook(self._keep_logits)
            try:
                return timed(*args, **kwargs)
            finally:
                watch.remove()

        return forward

    def _backward(self, backward: Any) -> Any:
        timed = self._timed("backward", backward)

        def run(loss, **kwargs):
            timed(loss, **kwargs)
            if self.weigh:
                self._stop()
            self.loss = float(loss.detach())
            self.gradients = torch.cat([p.grad.flatten().float().cpu() for p in self._parameters])

        return run

    def _start(self) -> None:
        if self.tensors:
            self._live = LiveBytes()
            self._live.__enter__()
        else:
            self._held = _start_on(self._device)

    def _stop(self) -> None:
        if self.tensors:
            self._live.__exit__(None, None, None)
            peak = self._live.peak
        else:
            peak = _peak(self._device) - self._held
        self.peak = max(self.peak, peak)

    def _keep_logits(self, module: Any, args: tuple, output: Any) -> None:
        logits = getattr(output, "logits", None)
        if torch.is_grad_enabled() and logits is not None:
            self.logits = logits.detach()

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """The data are preprocessed from here on."""
        self.seconds.clear()
        self.peak = 0
        self._began = self._now()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """The optimizer has stepped."""
        self.seconds["step"] = self._now() - self._began


def start_weighing() -> int:
    """Give back what the C library keeps, begin a new peak, and return the resident bytes of this process."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the peak of resident memory, see proc(5)
    return resident("VmRSS")


def resident(name: str) -> int:
    """Bytes of this process: "VmRSS" resident now, "VmHWM" at the peak."""
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith(name))
    return int(line.split()[1]) * 1024


def _start_on(device: torch.device) -> int:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    return start_weighing()


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else resident("VmHWM")
