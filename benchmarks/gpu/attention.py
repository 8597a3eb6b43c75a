"""Packed attention: FlexAttention against the loop of masked calls, on a long prompt and its completions.

One policy of random weights with LoRA of rank 16, 8 rows of one prompt, the decoder alone: what differs is
the attention of the packed row. Forward: without gradients, as for log-probs of the reference. Update:
forward and backward, all layers checkpointed. Medians of 5 after the calls that compile; peaks are of
allocated memory above what was held before. Differences are relative to the largest of the loop's.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peft import get_peft_model

from ..models import policy_of, stock
from .report import Part, table

GROUP, PROMPT, COMPLETION, TIMES = 8, 3400, 256, 5
MODELS = ("internvl-8b", "qwen2_5_vl-3b")
TINY = ("tiny-internvl", "tiny-qwen2_5_vl")
SETTINGS = ("loop", "flex")
COLUMNS = (
    "model", "rows", "prompt", "completion", "attention", "calls", "first update s", "forward s", "update s",
    "peak GiB", "hidden states differ", "gradients differ", "why not flex",
)  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Of one setting.

    Attributes:
        first: Seconds of the first update, compilation included.
        forward: Seconds.
        update: Seconds.
        peak: Bytes of an update; 0 on a CPU.
        hidden: Hidden states of the completions.
        gradients: Of the adapter, in one vector.
        report: What the policy says of its packed attention.
    """

    first: float
    forward: float
    update: float
    peak: int
    hidden: torch.Tensor
    gradients: torch.Tensor
    report: dict[str, Any]


def rows(words: int, tiny: bool, device: str) -> dict[str, torch.Tensor]:
    """One prompt with `GROUP` completions, of random ids below `words`."""
    prompt, completion = (PROMPT // 20, COMPLETION // 20) if tiny else (PROMPT, COMPLETION)
    draws = torch.Generator().manual_seed(0)
    prompts = torch.randint(40, words, (1, prompt), generator=draws).expand(GROUP, -1)
    completions = torch.randint(40, words, (GROUP, completion), generator=draws)
    ids = torch.cat([prompts, completions], dim=1).to(device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def compare(name: str, part: Part) -> list[Figures]:
    """The figures of each of `SETTINGS`."""
    model, processor = stock(name, 1, part.device)
    policy = policy_of(model, processor, same_weights=True)
    torch.manual_seed(0)
    adapted = get_peft_model(policy, policy.lora_config(r=16, init_lora_weights=False))
    adapted.train()
    adapted.gradient_checkpointing_enable({"use_reentrant": False})
    batch = rows(200, part.tiny, part.device)
    return [measure(policy, batch, setting, part) for setting in SETTINGS]


def measure(policy: Any, batch: dict[str, torch.Tensor], setting: str, part: Part) -> Figures:
    """The figures of one setting."""
    policy.set_packed_attention(setting)
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    completion = COMPLETION // 20 if part.tiny else COMPLETION

    def forward() -> torch.Tensor:
        output = policy.base_model(**batch, use_cache=False)
        return output.last_hidden_state[:, -completion:]

    def update() -> torch.Tensor:
        for weight in weights:
            weight.grad = None
        hidden = forward()
        hidden.float().square().mean().backward()
        return hidden.detach()

    first, _ = _timed(update, part.device)
    with torch.no_grad():
        forward()
        forwards = [_timed(forward, part.device)[0] for _ in range(TIMES)]
    held = torch.cuda.memory_allocated() if part.device == "cuda" else 0
    if part.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    updates = [_timed(update, part.device) for _ in range(TIMES)]
    peak = torch.cuda.max_memory_allocated() - held if part.device == "cuda" else 0
    report = policy.sharing_report()
    return Figures(
        first=first,
        forward=statistics.median(forwards),
        update=statistics.median(seconds for seconds, _ in updates),
        peak=peak,
        hidden=updates[-1][1].float(),
        gradients=torch.cat([weight.grad.flatten().float() for weight in weights if weight.grad is not None]),
        report={name: report[name] for name in ("packed_attention", "not_flex")},
    )


def _timed(run: Callable[[], torch.Tensor], device: str) -> tuple[float, torch.Tensor]:
    began = time.perf_counter()
    result = run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began, result


def attention(part: Part) -> None:
    """Write a line for each model and setting."""
    part.write(__doc__.split("\n\n", 1)[1] + "\n")
    part.write(table(COLUMNS, head=True))
    for name in TINY if part.tiny else MODELS:
        try:
            loop, flex = compare(name, part)
        except Exception as error:
            part.failed(error)
            continue
        for setting, figures in zip(SETTINGS, (loop, flex), strict=True):
            part.write(table(_cells(name, setting, figures, loop, part)))


def _cells(name: str, setting: str, figures: Figures, loop: Figures, part: Part) -> tuple[Any, ...]:
    length = PROMPT // 20 if part.tiny else PROMPT
    calls = ", ".join(f"{kernel} {number}" for kernel, number in figures.report["packed_attention"].items())
    return (
        name, GROUP, length, COMPLETION // 20 if part.tiny else COMPLETION, setting, calls,
        f"{figures.first:.1f}", f"{figures.forward:.3f}", f"{figures.update:.3f}",
        f"{figures.peak / 2**30:.2f}",
        _apart(figures.hidden, loop.hidden), _apart(figures.gradients, loop.gradients),
        "; ".join(figures.report["not_flex"]) or "-",
    )  # fmt: skip


def _apart(found: torch.Tensor, expected: torch.Tensor) -> str:
    return f"{float((found - expected).abs().max() / expected.abs().max()):.0e}"
