"""Whether policies agree with stock on this device, for each dtype and attention kernel.

float32 (TF32 off): a policy, sharing or not, differs from stock with the same kernel by rounding: log-probs
by at most 1e-5, gradients by at most 1e-4 of the largest, and greedy tokens are the same.

bfloat16: rounding is large, so stock's own is the measure. The truth is the same weights in float32; a
policy's distance from it (log-probs: mean; gradients: norm of the difference over that of the truth) is at
most twice stock's, and 0.002 more.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch

from .cases import Run, greedy, in_dtype, policies, run, stock_model
from .report import Part, reason, table

FAMILIES = ("internvl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "gemma3")
KERNELS = ("sdpa", "eager", "flash_attention_2", "flex_attention")
DTYPES = (torch.float32, torch.bfloat16)
LOGPS, GRADIENTS = 1e-5, 1e-4
NOISE, ABOVE = 2.0, 0.002
COLUMNS = (
    "family", "dtype", "kernel", "sharing", "tokens shared", "log-probs", "gradients", "greedy", "verdict",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """One policy against stock.

    Attributes:
        logps: Its distance, and what is allowed.
        gradients: Likewise.
        greedy: Whether greedy tokens are the same; None if not asked.
    """

    logps: tuple[float, float]
    gradients: tuple[float, float]
    greedy: bool | None

    @property
    def passed(self) -> bool:
        """Whether all of it is as it should be; a NaN is not."""
        near = all(found <= allowed for found, allowed in (self.logps, self.gradients))
        return near and self.greedy is not False


def by_rounding(ours: Run, stock: Run, same_tokens: bool | None) -> Verdict:
    """In float32: against stock itself."""
    logps = float((ours.logps - stock.logps).abs().max())
    gradients = float((ours.gradients - stock.gradients).abs().max() / stock.gradients.abs().max())
    return Verdict((logps, LOGPS), (gradients, GRADIENTS), same_tokens)


def by_noise(ours: Run, stock: Run, truth: Run) -> Verdict:
    """In bfloat16: distances from the truth, against stock's."""

    def distances(some: Run) -> tuple[float, float]:
        logps = float((some.logps - truth.logps).abs().mean())
        return logps, float((some.gradients - truth.gradients).norm() / truth.gradients.norm())

    found, theirs = distances(ours), distances(stock)
    logps, gradients = ((own, NOISE * other + ABOVE) for own, other in zip(found, theirs, strict=True))
    return Verdict(logps, gradients, None)


def compare(family: str, kernel: str, dtype: torch.dtype, device: str) -> Iterator[tuple[str, ...]]:
    """The table's rows for one family, kernel and dtype: a policy that never shares, and one that does."""
    exact = dtype is torch.float32
    try:
        plain, processor = stock_model(family, kernel, device)
        model = in_dtype(plain, dtype)
        stock = run(model, processor, device)
        tokens = greedy(model, processor, device) if exact else None
    except Exception as error:  # whatever a kernel says of a model that it does not know
        yield (family, _name(dtype), kernel, "", "", "", "", "", f"stock cannot: {reason(error)}")
        return
    truth = None if exact else _truth(family, device)
    for sharing, policy in policies(model, processor).items():
        head = (family, _name(dtype), kernel, sharing)
        try:
            ours = run(policy, policy.processing_class, device)
            same = None
            if exact:
                same = torch.equal(greedy(policy, policy.processing_class, device), tokens)
        except Exception as error:
            yield (*head, "", "", "", "", f"**FAILS**: {reason(error)}")
            continue
        verdict = by_rounding(ours, stock, same) if truth is None else by_noise(ours, stock, truth)
        yield (*head, _shared(policy), *_cells(verdict))


@lru_cache
def _truth(family: str, device: str) -> Run:
    return run(*stock_model(family, "eager", device), device)


def _cells(verdict: Verdict) -> tuple[str, ...]:
    numbers = (f"{found:.1e} <= {most:.1e}" for found, most in (verdict.logps, verdict.gradients))
    same = {None: "", True: "same", False: "other"}[verdict.greedy]
    return (*numbers, same, "ok" if verdict.passed else "**FAILS**")


def _shared(policy) -> str:
    report = policy.sharing_report()
    if report["tokens"]:
        return f"{report['tokens']} in {report['tokens_computed']}"
    reasons = [text for text in report["not_shared"] if not text.startswith("generate")]
    return "none: " + "; ".join(reasons) if reasons else "none"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def cases(device: str) -> list[tuple[str, str, torch.dtype]]:
    """The most telling first; FlexAttention, which compiles for seconds, last."""
    pairs = [(kernel, dtype) for kernel in KERNELS for dtype in DTYPES]
    half_only = ("flash_attention_2",)
    pairs = [(kernel, dtype) for kernel, dtype in pairs if kernel not in half_only or dtype is torch.bfloat16]
    return [(family, kernel, dtype) for kernel, dtype in pairs for family in FAMILIES]


def conformance(part: Part) -> None:
    """Write the table: what time allows of families x kernels x dtypes."""
    families = FAMILIES[::3] if part.tiny else FAMILIES
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    part.write(__doc__.split("\n\n", 1)[1] + "\n")
    part.write(table(COLUMNS, head=True))
    left = [case for case in cases(part.device) if case[0] in families]
    slowest = 0.0
    while left and part.seconds_left() > 1.5 * slowest:
        began = time.monotonic()
        try:
            for row in compare(*left.pop(0), part.device):
                part.write(table(row))
        except Exception as error:
            part.failed(error)
        slowest = max(slowest, time.monotonic() - began)
    if left:
        names = ", ".join(f"{family} {kernel} {_name(dtype)}" for family, kernel, dtype in left)
        part.write(f"\nNo time left for: {names}.\n")
