"""What the GPU command says of a policy that differs from stock."""

from dataclasses import replace

import pytest
import torch

from benchmarks.gpu.cases import Run
from benchmarks.gpu.conformance import GRADIENTS, LOGPS, by_noise, by_rounding, cases
from benchmarks.gpu.report import reason, table
from benchmarks.gpu.syncs import waits


@pytest.fixture
def stock() -> Run:
    draws = torch.Generator().manual_seed(0)
    return Run(torch.randn(4, 9, generator=draws), torch.randn(100, generator=draws))


def test_rounding_passes_and_more_fails(stock):
    assert by_rounding(stock, stock, True).passed
    assert by_rounding(replace(stock, logps=stock.logps + LOGPS / 2), stock, None).passed
    assert not by_rounding(replace(stock, logps=stock.logps + 2 * LOGPS), stock, True).passed
    scale = float(stock.gradients.abs().max())
    assert not by_rounding(
        replace(stock, gradients=stock.gradients + 2 * GRADIENTS * scale), stock, True
    ).passed


def test_other_greedy_tokens_fail(stock):
    assert not by_rounding(stock, stock, False).passed


def test_what_is_no_number_fails(stock):
    broken = replace(stock, logps=stock.logps * torch.nan)
    assert not by_rounding(broken, stock, True).passed
    assert not by_noise(broken, stock, stock).passed


def test_half_precision_may_be_as_far_from_the_truth_as_stock_is(stock):
    noisy = Run(stock.logps + 0.1, stock.gradients * 1.1)
    assert by_noise(noisy, noisy, stock).passed
    assert by_noise(stock, noisy, stock).passed
    assert not by_noise(Run(stock.logps + 0.3, stock.gradients), noisy, stock).passed
    assert not by_noise(Run(stock.logps, stock.gradients * 1.3), noisy, stock).passed


def test_flash_attention_is_not_asked_for_float32():
    asked = {(kernel, dtype) for _, kernel, dtype in cases("cpu")}
    assert ("flash_attention_2", torch.bfloat16) in asked
    assert ("flash_attention_2", torch.float32) not in asked


def test_waits_are_counted_where_they_are():
    tensor = torch.ones(3)
    with waits("cpu") as places:
        tensor.sum().item()
        tensor.tolist()
        tensor[tensor > 0].sum()
        tensor + tensor
    assert places.total() == 3
    assert all("tests/benchmarks/test_gpu_verdicts.py:" in place for place in places)


def test_nothing_breaks_a_table():
    assert table(["a|b", 1]) == "| a/b | 1 |"
    assert reason(ValueError("first\nsecond")) == "ValueError: first"
