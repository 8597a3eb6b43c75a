"""FlexAttention for packed rows: what its kernel is told, its values, and what it leaves to the loop.

Torch has no backward pass of it on a CPU. What decides that gradients are exact is tested instead: the
lists of blocks and the function that the kernel reads, forward and backward, say what the rows' masks say.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    sliding_window_causal_mask_function,
)

from hf_vlm_rl.policy.sharing import flex, kernel
from hf_vlm_rl.policy.sharing.attention import shared_prefix_attention
from hf_vlm_rl.policy.sharing.kernel import PackedAttention
from hf_vlm_rl.policy.sharing.layout import find_layout
from hf_vlm_rl.policy.sharing.visibility import DenseVisibility, FunctionVisibility, Visibility

# float32 on one thread, of values of size 1.
ATOL = 1e-5

# Prompts of a group in tokens, and their completions; some of which begin with `common` tokens.
GROUPS = st.lists(
    st.tuples(st.integers(1, 170), st.integers(0, 60), st.lists(st.integers(1, 90), min_size=1, max_size=4)),
    min_size=1,
    max_size=3,
)
KINDS = ("causal", "function", "window", "chunks", "images", "dense", "dense window")
IMAGE = slice(1, 40)


def rows_of(groups) -> list[torch.Tensor]:
    rows = []
    for number, (prompt, common, lengths) in enumerate(groups):
        for row, length in enumerate(lengths):
            shared = torch.full((prompt + (common if row % 2 else 0),), 1 + number)
            shared[prompt:] = 50 + number
            rows.append(torch.cat([shared, 1000 * (len(rows) + 1) + torch.arange(length)]))
    return rows


def batch_of(groups, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    rows = rows_of(groups)
    ids = torch.full((len(rows), max(map(len, rows))), -1)
    for line, row in zip(ids, rows, strict=True):
        line[-len(row) :] = row if left else line[-len(row) :]
        if not left:
            line[: len(row)] = row
    return ids, ids >= 0


def function_of(kind: str):
    """What a row's tokens see by their places in it: (batch, head, query, key)."""
    window = sliding_window_causal_mask_function(33)
    inside = lambda batch, head, query, key: (  # noqa: E731
        (query >= IMAGE.start) & (query < IMAGE.stop) & (key >= IMAGE.start) & (key < IMAGE.stop)
    )
    return {
        "causal": causal_mask_function,
        "function": and_masks(causal_mask_function, causal_mask_function),
        "window": window,
        "chunks": chunked_causal_mask_function(50, torch.zeros(1, dtype=torch.long)),
        "images": or_masks(causal_mask_function, inside),
        "dense": or_masks(causal_mask_function, inside),
        "dense window": window,
    }[kind]


def dense(kind: str, mask: torch.Tensor) -> torch.Tensor:
    """(B, T, T) what the stock model's rows see, places counted from each row's first token."""
    columns = torch.arange(mask.shape[1])
    made = []
    for row in mask:
        places = columns - int(row.int().argmax())
        zero = places.new_zeros(())
        seen = function_of(kind)(zero, zero, places[:, None], places[None])
        made.append(seen.expand(len(columns), -1) & row & row[:, None])
    return torch.stack(made)


def visibility(kind: str, layout, mask: torch.Tensor) -> Visibility:
    if kind == "causal":
        return Visibility(layout)
    if kind.startswith("dense"):
        return DenseVisibility(layout, dense(kind, mask)[:, None])
    return FunctionVisibility(layout, function_of(kind))


def layout_of(groups, kind: str, left: bool, attention: PackedAttention | None = None):
    ids, mask = batch_of(groups, left)
    joined = torch.zeros_like(mask)
    if kind in ("images", "dense"):
        for row, seen in enumerate(mask):
            start = int(seen.int().argmax())
            joined[row, start + IMAGE.start + 1 : start + IMAGE.stop] = True
    layout = find_layout(ids, mask, joined & mask, toll=0)
    return replace(layout, attention=attention), mask


def expected(layout, kind: str, mask: torch.Tensor) -> torch.Tensor:
    """(S, S) who sees whom: of all rows, what their own masks say, at the packed places of their tokens."""
    seen = torch.zeros(layout.computed, layout.computed, dtype=torch.bool)
    places = layout.target.view(layout.shape)
    for row, (real, own) in enumerate(zip(mask, dense(kind, mask), strict=True)):
        packed = places[row, real]
        seen[packed[:, None], packed] = own[real][:, real]
    return seen


def expanded(counts: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """(n, n) the blocks that lists name."""
    named = torch.zeros(numbers.shape[-2:], dtype=torch.bool)
    for row, (count, those) in enumerate(zip(counts[0, 0], numbers[0, 0], strict=True)):
        named[row, those[:count].long()] = True
    return named


drawn = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", KINDS)
@drawn
@example(groups=[(300, 0, [1]), (7, 30, [128, 3, 90, 90])], left=True)
@example(groups=[(128, 0, [128])], left=False)
@given(groups=GROUPS, left=st.booleans())
def test_the_kernel_is_told_what_the_rows_masks_say(kind, groups, left):
    layout, mask = layout_of(groups, kind, left)
    blocks = visibility(kind, layout, mask).blocks
    told, tokens = blocks.mask(), layout.computed
    seen = torch.eye(blocks.length, dtype=torch.bool)  # what is beyond the packed tokens
    seen[:tokens, :tokens] = expected(layout, kind, mask)
    function = create_mask(told.mask_mod, None, None, blocks.length, blocks.length, device="cpu")
    assert torch.equal(function[0, 0], seen)
    by_block = seen.unflatten(0, (-1, flex.SIDE)).unflatten(2, (-1, flex.SIDE)).transpose(1, 2).flatten(2)
    everything, something = by_block.all(dim=2), by_block.any(dim=2)
    for lists, blocks_of in (("full_", everything), ("", something & ~everything)):
        for side, those in (("kv", blocks_of), ("q", blocks_of.T)):
            counts, numbers = (getattr(told, f"{lists}{side}_{part}") for part in ("num_blocks", "indices"))
            assert torch.equal(expanded(counts, numbers), those), (lists, side)


@pytest.mark.parametrize("kind", KINDS)
@settings(drawn, max_examples=8)
@example(groups=[(300, 0, [1]), (7, 30, [128, 3, 90, 90])], left=True, heads=(6, 2), scaling=0.3)
@given(
    groups=GROUPS,
    left=st.booleans(),
    heads=st.sampled_from([(4, 4), (4, 1), (6, 2)]),
    scaling=st.sampled_from([None, 0.3]),
)
def test_values_are_those_of_the_loop_and_of_the_rows(kind, groups, left, heads, scaling):
    attention = PackedAttention("flex")
    layout, mask = layout_of(groups, kind, left, attention)
    seen = visibility(kind, layout, mask)
    draws = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(1, number, layout.computed, 16, generator=draws)
        for number in (heads[0], heads[1], heads[1])
    ]
    module = SimpleNamespace(is_causal=True)
    found, _ = shared_prefix_attention(module, *tensors, seen, scaling)
    assert attention.calls == {"flex": 1}
    attention.setting = "loop"
    looped, _ = shared_prefix_attention(module, *tensors, seen, scaling)
    assert attention.calls == {"flex": 1, "loop": 1}
    torch.testing.assert_close(found, looped, atol=ATOL, rtol=0)
    for row, real in enumerate(mask):
        packed = layout.target.view(layout.shape)[row, real]
        own = dense(kind, mask)[row][real][:, real]
        stock = scaled_dot_product_attention(
            *(each[:, :, packed] for each in tensors), attn_mask=own, scale=scaling, enable_gqa=True
        )
        torch.testing.assert_close(found[:, packed], stock.transpose(1, 2), atol=ATOL, rtol=0)


def drawn_tensors(tokens: int, size: int = 16, dtype=torch.float32) -> list[torch.Tensor]:
    draws = torch.Generator().manual_seed(tokens)
    return [torch.randn(1, heads, tokens, size, generator=draws).to(dtype) for heads in (4, 2, 2)]


MODULE = SimpleNamespace(is_causal=True)


def attend(groups, attention: PackedAttention, kind: str = "causal", **shape) -> tuple[torch.Tensor, ...]:
    layout, mask = layout_of(groups, kind, True, attention)
    tensors = drawn_tensors(layout.computed, **shape)
    return shared_prefix_attention(MODULE, *tensors, visibility(kind, layout, mask), 0.25)[0]


def test_one_kernel_is_compiled_for_all_lengths_and_kinds_of_layers():
    attention = PackedAttention("flex")
    for prompt in (40, 300):  # the check has had two lengths, unless torch forgot since what it compiled
        attend([(prompt, 0, [3, 4])], attention)
    before = counters["stats"]["unique_graphs"]
    for prompt in (5, 128, 200, 600, 77):
        for kind in KINDS:
            attend([(prompt, 20, [9, 50, 7])], attention, kind)
    assert counters["stats"]["unique_graphs"] == before
    assert attention.calls == {"flex": 2 + 5 * len(KINDS)}


@pytest.fixture
def nothing_checked(monkeypatch):
    monkeypatch.setattr(flex, "_kernels", {})
    monkeypatch.setattr(kernel, "_disagreements", {})


def test_it_is_compiled_as_often_as_torch_asks(nothing_checked):
    attention, threads = PackedAttention("flex"), torch.get_num_threads()
    try:
        for number in range(1, 12):
            torch.set_num_threads(number)  # torch compiles for each number of them, but not more than 8 times
            attend([(40, 0, [3, 4])], attention)
    finally:
        torch.set_num_threads(threads)
    assert attention.calls == {"flex": 11}
    assert not attention.refused


def test_a_cpu_uses_the_loop_unless_it_is_told_otherwise():
    attention = PackedAttention()
    attend([(40, 0, [3, 4])], attention)
    assert attention.calls == {"loop": 1}
    assert not attention.refused


def refused(attention: PackedAttention) -> str:
    (reason,) = attention.refused
    assert attention.calls == {"loop": attention.refused[reason]}
    return reason


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"size": 24}, "attention heads are 24 wide"),
        ({"dtype": torch.float64}, "attention is computed in torch.float64"),
    ],
)
def test_what_is_not_known_to_work_is_left_to_the_loop(shape, reason):
    attention = PackedAttention("flex")
    found = attend([(40, 0, [3, 4])], attention, **shape)
    assert reason in refused(attention)
    torch.testing.assert_close(found, attend([(40, 0, [3, 4])], PackedAttention("loop"), **shape))


def test_masks_that_are_added_to_the_scores_are_left_to_the_loop():
    attention = PackedAttention("flex")
    layout, mask = layout_of([(40, 0, [3, 4])], "images", True, attention)
    lowest = torch.finfo(torch.float32).min
    added = torch.zeros(mask.shape[0], 1, *mask.shape[1:] * 2).masked_fill(
        ~dense("images", mask)[:, None], lowest
    )
    tensors = drawn_tensors(layout.computed)
    found, _ = shared_prefix_attention(MODULE, *tensors, DenseVisibility(layout, added), None)
    assert refused(attention) == "the model's mask is added to the scores"
    attention.setting = "loop"
    stock, _ = shared_prefix_attention(MODULE, *tensors, visibility("images", layout, mask), None)
    torch.testing.assert_close(found, stock, atol=ATOL, rtol=0)


def test_autocast_brings_all_to_one_dtype():
    attention = PackedAttention("flex")
    layout, mask = layout_of([(40, 0, [3, 4])], "causal", True, attention)
    query, key, value = drawn_tensors(layout.computed)
    tensors = (query, key, value.bfloat16())  # as rotary positions in float32 make them
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = shared_prefix_attention(MODULE, *tensors, visibility("causal", layout, mask), None)
        attention.setting = "loop"
        looped, _ = shared_prefix_attention(MODULE, *tensors, visibility("causal", layout, mask), None)
    assert attention.calls == {"flex": 1, "loop": 1}
    assert found.dtype == looped.dtype == torch.bfloat16
    torch.testing.assert_close(found, looped, atol=0.02, rtol=0.02)


def test_gradients_on_a_cpu_are_left_to_the_loop():
    attention = PackedAttention("flex")
    layout, mask = layout_of([(40, 0, [3, 4])], "causal", True, attention)
    tensors = [each.requires_grad_() for each in drawn_tensors(layout.computed)]
    shared_prefix_attention(MODULE, *tensors, visibility("causal", layout, mask), None)[0].sum().backward()
    assert refused(attention) == "FlexAttention has no gradients on a CPU"
    with torch.no_grad():
        shared_prefix_attention(MODULE, *tensors, visibility("causal", layout, mask), None)
    assert attention.calls["flex"] == 1


def fails(*arguments, **keywords):
    raise RuntimeError("no kernel image is available")


def differs(*arguments, **keywords):
    return 1.2 * flex_attention(*arguments, **keywords)


def is_no_number(*arguments, **keywords):
    return torch.nan * flex_attention(*arguments, **keywords)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (fails, "FlexAttention fails on cpu: "),
        (differs, "FlexAttention differs from stock attention by 2.0e-01 "),
        (is_no_number, "FlexAttention differs from stock attention by nan "),
    ],
)
def test_where_it_fails_or_differs_the_loop_is_used_and_the_reason_named(
    function, reason, nothing_checked, monkeypatch
):
    groups = [(40, 0, [3, 4])]
    monkeypatch.setattr(flex, "flex_attention", function)
    attention = PackedAttention("flex")
    torch.testing.assert_close(attend(groups, attention), attend(groups, PackedAttention("loop")))
    assert refused(attention).startswith(reason)


def test_there_are_three_settings():
    with pytest.raises(
        ValueError, match=r"Got 'triton' for packed attention\. Expected 'auto', 'flex' or 'loop'"
    ):
        PackedAttention("triton")
