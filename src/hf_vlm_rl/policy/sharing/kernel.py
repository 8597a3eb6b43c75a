"""Which kernel computes the attention of packed rows: the loop of masked calls, or FlexAttention."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence
from transformers.utils import logging

from .flex import flex
from .layout import find_layout
from .tolerance import tolerance
from .visibility import Visibility

logger = logging.get_logger(__name__)

Setting = Literal["auto", "flex", "loop"]

# What FlexAttention is given. Others may work, but no check of ours would run before they are needed.
DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})
HEAD_SIZES = frozenset({16, 32, 64, 128, 256})
CAPABILITY = (8, 0)

# Two batches of two prompts and their completions, in tokens: of different length, with blocks in which
# nobody sees anybody, some do, and all do.
PROBES = (((150, (40, 130)), (20, (9, 3))), ((300, (70, 3, 200)), (140, (5, 9))))

# Most that rounding may make of a token's difference, as a share of its size. What a token must not see makes
# a difference of about that size.
ROUNDING = 0.05


class Kind(NamedTuple):
    """What a kernel depends on."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    key_heads: int
    size: int
    value_size: int
    scaling: float | None


class PackedAttention:
    """Chooses the kernel for each call, and keeps account of it. One per policy.

    FlexAttention has one call for all tokens and reads grouped keys as they are; the loop is made of stock's
    own attention, with some calls for each prompt, and repeats grouped keys on CUDA.

    Args:
        setting: "auto": FlexAttention on CUDA and the loop elsewhere; "flex": FlexAttention, also on a CPU,
            where it is slow and has no gradients; "loop": always the loop. Where FlexAttention cannot
            compute a call, the loop does.

    Attributes:
        calls: Kernel ("flex", "loop") to number of calls, one for each layer of a forward.
        refused: Why FlexAttention did not compute a call, to number of calls.

    Raises:
        ValueError: If there is no such setting.
    """

    def __init__(self, setting: Setting = "auto"):
        if setting not in ("auto", "flex", "loop"):
            raise ValueError(f"Got {setting!r} for packed attention. Expected 'auto', 'flex' or 'loop'.")
        self.setting = setting
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._left: str | None = None

    def leave_flex(self, reason: str) -> bool:
        """Use the loop from here on, for this reason; returns whether FlexAttention had been in use."""
        if self._left is not None or not self.calls["flex"]:
            return False
        self._left = reason
        logger.warning(f"FlexAttention is not used from here on: {reason}.")
        return True

    def takes_flex(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        visibility: Visibility,
        scaling: float | None,
        plain: bool,
    ) -> bool:
        """Whether FlexAttention computes a call; arguments as of `attention.shared_prefix_attention`.

        `plain`: Scores are neither capped nor have sinks.
        """
        device = query.device
        if self.setting == "loop" or (self.setting == "auto" and device.type != "cuda"):
            self.calls["loop"] += 1
            return False
        reason = self._left or _unknown(query, key, value, visibility)
        if reason is None and not plain:
            reason = "scores are capped, or have sinks"
        if reason is None:
            sizes = (query.shape[1], key.shape[1], query.shape[3], value.shape[3])
            reason = _disagreement(Kind(device, query.dtype, *sizes, scaling))
        if reason is not None:
            self.refused[reason] += 1
        self.calls["flex" if reason is None else "loop"] += 1
        return reason is None


def _unknown(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visibility: Visibility
) -> str | None:
    """Why FlexAttention is not asked for a call, whatever it would make of it."""
    device = query.device
    if device.type not in ("cuda", "cpu"):
        return f"the device is {device.type}"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < CAPABILITY:
        return f"the card has a compute capability below {'.'.join(map(str, CAPABILITY))}"
    if device.type == "cpu" and torch.is_grad_enabled() and any(map(_has_grad, (query, key, value))):
        return "FlexAttention has no gradients on a CPU"
    if query.dtype not in DTYPES or {key.dtype, value.dtype} != {query.dtype}:
        return f"attention is computed in {query.dtype}, {key.dtype} and {value.dtype}"
    if unknown := {query.shape[3], key.shape[3], value.shape[3]} - HEAD_SIZES:
        return f"attention heads are {min(unknown)} wide"
    if query.shape[1] % key.shape[1] or key.shape[1] != value.shape[1]:
        return "heads of queries are no multiple of those of keys"
    if visibility.additive:
        return "the model's mask is added to the scores"
    return None


def _has_grad(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad


_disagreements: dict[Kind, str | None] = {}


def _disagreement(kind: Kind) -> str | None:
    """Why FlexAttention must not compute calls of a kind; None if it gives what stock attention does.

    It runs once for each kind, before the first call, forward and backward. A thread of its own keeps what is
    set for the forward that asks (autocast, inference mode, checkpointing's hooks) from the check, and the
    check from that forward.
    """
    if kind not in _disagreements:
        with ThreadPoolExecutor(1) as threads:
            reason = threads.submit(_check, kind).result()
        if reason is not None:
            logger.warning(f"Packed rows attend in a loop: {reason}.")
        _disagreements[kind] = reason
    return _disagreements[kind]


def _check(kind: Kind) -> str | None:
    allowed = min(tolerance(kind.dtype), ROUNDING)
    for probe in PROBES:
        try:
            difference = _difference(kind, probe)
        except Exception as error:  # a compiler, a driver or a card may have anything against it
            text = str(error).strip().splitlines() or [""]
            return f"FlexAttention fails on {kind.device}: {type(error).__name__}: {text[0]}"
        if not difference <= allowed:  # not a number is no agreement
            return (
                f"FlexAttention differs from stock attention by {difference:.1e} of a token's size in "
                f"{kind.dtype} (at most {allowed:.0e} is rounding)"
            )
    return None


def _difference(kind: Kind, probe: Sequence[tuple[int, Sequence[int]]]) -> float:
    """The largest difference of a token's output or gradients from stock attention's in float32."""
    visibility = _probed(probe, kind.device)
    tokens = visibility.layout.computed
    draws = torch.Generator().manual_seed(0)

    def drawn(heads: int, size: int) -> torch.Tensor:
        numbers = torch.randn(1, heads, tokens, size, generator=draws)
        return numbers.to(kind.device, kind.dtype).requires_grad_(kind.device.type != "cpu")

    inputs = (
        drawn(kind.heads, kind.size),
        drawn(kind.key_heads, kind.size),
        drawn(kind.key_heads, kind.value_size),
    )
    places = torch.arange(tokens, device=kind.device)
    mask = visibility.seen(places[:, None], places)
    output = flex(*inputs, visibility.blocks, kind.scaling)
    query, key, value = (each.float() for each in inputs)
    key, value = (each.repeat_interleave(kind.heads // kind.key_heads, dim=1) for each in (key, value))
    expected = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=kind.scaling)
    pairs = [(output, expected)]
    if output.requires_grad:
        weights = torch.randn(output.shape, generator=draws).to(output)
        pairs += zip(
            torch.autograd.grad(output, inputs, weights),
            torch.autograd.grad(expected, inputs, weights.float()),
            strict=True,
        )
    # In one tensor, whose largest number is none where any is none.
    return torch.stack([_apart(found.detach(), right.detach()) for found, right in pairs]).max().item()


def _apart(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The largest difference of a token, as a share of its size or of tokens' mean size if that is more."""
    sizes = expected.float().norm(dim=(1, 3))
    return ((found.float() - expected.float()).norm(dim=(1, 3)) / sizes.clamp(min=sizes.mean())).max()


def _probed(probe: Sequence[tuple[int, Sequence[int]]], device: torch.device) -> Visibility:
    rows: list[torch.Tensor] = []
    for prompt, completions in probe:
        for length in completions:
            own = 1000 * (len(rows) + 1) + torch.arange(length)
            rows.append(torch.cat([torch.full((prompt,), prompt), own]))
    keys = pad_sequence(rows, batch_first=True, padding_value=-1)
    layout = find_layout(keys, keys >= 0)
    if layout is None:
        raise ValueError("Got a probe with an empty row. Expected tokens in each.")
    return Visibility(layout.to(device))
