"""Completions that end where a benchmark wants them to."""

from typing import Any

import torch
from transformers import StoppingCriteria


class EndAt(StoppingCriteria):
    """Ends each row at its own length.

    Args:
        lengths: (B,) tokens of each completion.
    """

    def __init__(self, lengths: torch.Tensor):
        self.lengths = lengths
        self.prompt: int | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> torch.BoolTensor:
        if self.prompt is None:  # the first call comes after the first token
            self.prompt = input_ids.shape[1] - 1
        return input_ids.shape[1] - self.prompt >= self.lengths


def lengths(rows: int, longest: int, spread: float) -> torch.Tensor:
    """(B,) lengths from 1 to the longest, which is `spread` times their mean; the same for every run."""
    quantiles = torch.linspace(0, 1, rows) if rows > 1 else torch.ones(1)
    # The power for which the mean is right, by halving.
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float((quantiles**middle).mean()) > 1 / spread else (low, middle)
    found = (longest * quantiles**low).round().clamp(1, longest).long()
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    return found[order]
