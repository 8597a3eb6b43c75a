"""Samples tokens of any row and step as transformers' loop does, with its random numbers."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers import LogitsProcessorList

# No row may be further ahead of the slowest than so many bytes of random numbers reach, or so many steps.
NUMBERS_BYTES = 256 << 20
LEAST_REACH = 16


class Sampler:
    """Rows may be at different steps.

    `torch.multinomial` draws an exponential number for each word, and takes the word with the largest
    quotient of probability and number. The loop draws for all rows, one step after the other: so numbers of
    a step are kept until the slowest row has used its own.

    Args:
        processors: Processors that look at scores alone.
        do_sample: Whether to sample; else the word of the highest score is taken.
        prompts: (B, P) ids.
    """

    def __init__(self, processors: LogitsProcessorList, do_sample: bool, prompts: torch.Tensor):
        self._processors, self._do_sample, self._prompts = processors, do_sample, prompts
        self._numbers: dict[int, torch.Tensor] = {}  # of a step, (B, V)
        self._next = 1  # the loop has sampled the first token
        self._reach = LEAST_REACH if do_sample else sys.maxsize

    @property
    def reach(self) -> int:
        """How many steps from the slowest row's on may be sampled, that one included."""
        return self._reach

    def sample(self, logits: torch.Tensor, rows: Sequence[int], steps: Sequence[int]) -> list[int]:
        """The next token of some rows.

        Args:
            logits: (r, V).
            rows: The numbers of the r rows.
            steps: For each, how many tokens it has.

        Raises:
            RuntimeError: If the scores of a row are no distribution, as in transformers' loop.
        """
        prompts: Any = self._prompts[rows]
        scores = self._processors(prompts, logits.to(dtype=torch.float32, copy=True))
        if not self._do_sample:
            return scores.argmax(dim=-1).tolist()
        chances = scores.softmax(dim=-1)
        if bool(chances[:, 0].isnan().any()):  # then all of a row are
            row = rows[int(chances[:, 0].isnan().nonzero()[0])]
            raise RuntimeError(
                f"The scores of row {row} hold inf or nan, or -inf for all words. Expected finite logits, "
                "and processors that leave a word."
            )
        self._draw(max(steps), chances)
        numbers = [self._numbers[step][row] for step, row in zip(steps, rows, strict=True)]
        return (chances / torch.stack(numbers)).argmax(dim=-1).tolist()

    def forget(self, step: int) -> None:
        """No row will be sampled at steps before this one."""
        for old in [each for each in self._numbers if each < step]:
            del self._numbers[old]

    def _draw(self, step: int, chances: torch.Tensor) -> None:
        """Draw what is missing up to a step."""
        rows, words = len(self._prompts), chances.shape[-1]
        self._reach = max(LEAST_REACH, NUMBERS_BYTES // (4 * rows * words))
        for missing in range(self._next, step + 1):
            self._numbers[missing] = chances.new_empty(rows, words).exponential_()
        self._next = max(self._next, step + 1)
