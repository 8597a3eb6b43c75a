"""Stock and policy on the pretend card: agreement, waits of the host, kernels of a decoding step."""

import copy
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback

from benchmarks.gpu.cases import GREEDY, Run, greedy, policies, prompts, run, stock_model, with_completions
from benchmarks.gpu.conformance import by_rounding
from hf_vlm_rl.policy.generate import prefill

from .counts import Counts

STEPS = 16
# With fewer rows than on the micro-batch of a user, and as many as share a prompt there.
ROLLOUT = {"per_device_train_batch_size": 8, "num_generations": 4, "steps_per_generation": 1}


def measure(counts: Counts, family: str, trainers: bool = True) -> dict[str, Any]:
    """What one family does on the card.

    Args:
        counts: Those of the card.
        family: `config.model_type` of a tiny model.
        trainers: Whether GRPO runs as well, which takes most of the time.

    Returns:
        `differ`: the largest differences of log-probs and gradients from stock, each over what rounding
        explains. `greedy`: whether greedy tokens are stock's, from a shared cache too. `not_shared`: reasons.
        `waits`: the name of a phase to the waits of stock and policy; `places`: likewise, to the policy's
        lines. `kernels`: of a decoding step, of stock, policy, and a policy whose cache shares its prompts.
    """
    model, processor = stock_model(family, "sdpa", "cuda")
    policy = policies(model, processor)["on"]
    sides = {"stock": (model, processor), "policy": (policy, policy.processing_class)}
    runs = {name: _run(*side) for name, side in sides.items()}
    tokens = {name: greedy(*side, "cuda").tolist() for name, side in sides.items()}
    verdict = by_rounding(runs["policy"], runs["stock"], tokens["policy"] == tokens["stock"])
    phases: dict[str, dict[str, Counter]] = {"forward and backward": {}, f"generate, {STEPS} tokens": {}}
    kernels = {}
    for name, (side, processing) in sides.items():
        batch = prompts(processing, "cuda")
        phases["forward and backward"][name] = _waits(counts, _update(side, batch))
        phases[f"generate, {STEPS} tokens"][name] = _waits(counts, _generate(side, batch, STEPS))
        kernels[name] = _kernels_of_a_step(counts, side, batch)
    with copies_never_pay():
        kernels["shared cache"] = _kernels_of_a_step(counts, policy, batch)
    with copies_never_pay():
        shared = greedy(*sides["policy"], "cuda").tolist()
    if trainers:
        phases["GRPO step"] = {name: _grpo(counts, *side) for name, side in sides.items()}
        if not policy.family.needs_image:  # TRL's DPO asks PaliGemma's own processor for text alone
            phases["DPO step"] = {name: _dpo(counts, *side) for name, side in sides.items()}
    return {
        "differ": [share / allowed for share, allowed in (verdict.logps, verdict.gradients)],
        "greedy": verdict.greedy and shared == tokens["stock"],
        "not_shared": list(policy.sharing_report()["not_shared"]),
        "waits": {phase: {name: sum(w.values()) for name, w in of.items()} for phase, of in phases.items()},
        "places": {
            phase: [f"{number} {kind} {line}" for (kind, line), number in of["policy"].most_common()]
            for phase, of in phases.items()
        },
        "kernels": kernels,
        "layers": model.config.get_text_config().num_hidden_layers,
    }


@contextmanager
def copies_never_pay() -> Iterator[None]:
    """Inside the block, `generate` shares the keys of prompts, as it does on a card if these are long."""
    stated, prefill.COPIES = prefill.COPIES, -1
    try:
        yield
    finally:
        prefill.COPIES = stated


def _run(side: Any, processing: Any) -> Run:
    computed = run(side, processing, "cuda")
    return Run(computed.logps.cpu(), computed.gradients)


def _update(side: Any, batch: Any) -> Callable[[], None]:
    """A forward and backward of a decoder's weights beside a frozen tower; run once."""
    grown, _ = with_completions(batch)
    side.requires_grad_(False)
    side.get_decoder().requires_grad_(True)

    def update() -> None:
        side(**grown, use_cache=False).logits.mean().backward()
        side.zero_grad(set_to_none=True)

    update()
    return update


def _generate(side: Any, batch: Any, steps: int) -> Callable[[], Any]:
    return lambda: side.generate(**batch, max_new_tokens=steps, min_new_tokens=steps, do_sample=True)


def _waits(counts: Counts, call: Callable[[], Any]) -> Counter:
    call()
    before = counts.waits.copy()
    call()
    return counts.waits - before


def _kernels_of_a_step(counts: Counts, side: Any, batch: Any) -> float:
    launched = []
    _generate(side, batch, 2)()  # the first time, paths are compared with stock
    for steps in (4, GREEDY):
        before = counts.launched
        _generate(side, batch, steps)()
        launched.append(counts.launched - before)
    return (launched[1] - launched[0]) / (GREEDY - 4)


class _LastStep(TrainerCallback):
    """The waits of a trainer's latest step."""

    def __init__(self, counts: Counts):
        self.counts, self.waits = counts, Counter()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._before = self.counts.waits.copy()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.waits = self.counts.waits - self._before


def _grpo(counts: Counts, side: Any, processing: Any) -> Counter:
    """The waits of a step of TRL's GRPO."""
    from tests.trainers.runs import grpo

    placeholders = {side.config.image_token_id, getattr(side.config, "video_token_id", None)} - {None}
    # Stock models of random weights sample placeholders, and then miss their images.
    options = ROLLOUT | {"generation_kwargs": {"suppress_tokens": sorted(placeholders)}}
    return _of_a_step(counts, grpo, side, _rows(), processing, options)


def _dpo(counts: Counts, side: Any, processing: Any) -> Counter:
    """The waits of a step of TRL's DPO, whose log-probs of the reference are computed beside it."""
    from tests.trainers.runs import dpo, said

    answers = {"chosen": said("A person."), "rejected": said("A house.")}
    rows = [row | answers for row in _rows() for _ in range(2)]
    options = {"per_device_train_batch_size": 4, "ref_model": copy.deepcopy(side)}
    return _of_a_step(counts, dpo, side, rows, processing, options)


def _rows() -> list[dict[str, Any]]:
    from tests.trainers.runs import square, user

    # Of one length: PaliGemma's own processor cannot make others without padding.
    return [{"prompt": user("What is it?"), "images": [square(name)]} for name in ("astronaut", "coffee")]


def _of_a_step(
    counts: Counts, make: Callable[..., Any], side: Any, rows: Any, processing: Any, options: dict[str, Any]
) -> Counter:
    """The waits of the second of two steps, with gradient checkpointing as is TRL's default."""
    last = _LastStep(counts)
    with tempfile.TemporaryDirectory() as out:
        defaults = {"use_cpu": False, "gradient_checkpointing": True, "bf16": False, "max_steps": 2}
        trainer = make(side, rows, out, processing_class=processing, **defaults | options)
        trainer.add_callback(last)
        trainer.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    if not all(map(math.isfinite, losses)):
        raise FloatingPointError(f"Got a loss that is no number from {type(side).__name__}.")
    return last.waits
