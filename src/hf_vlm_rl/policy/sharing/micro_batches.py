"""The rows of the latest optimiser step, to say what fewer and larger micro-batches would compute.

Rows with one prompt share it within a forward. Where gradients are accumulated over several forwards, each of
them computes the prompt again.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

# Forwards of one optimiser step that are kept. A trainer that accumulates more gets no figures.
MOST = 64

# What of a row's tokens is kept: see `find_layout`. Padding is given these values.
FILL = {"keys": 0, "joined": False, "mask": False}


def is_training(model: nn.Module) -> bool:
    """Whether a forward that runs now is one of an optimiser step, and not a rollout's or a reference's."""
    return model.training and torch.is_grad_enabled()


class MicroBatches:
    """The token keys of the training forwards since the gradients were empty, and of the step before."""

    def __init__(self) -> None:
        self._now: list[dict[str, Any]] = []
        self._before: list[dict[str, Any]] = []

    def see(self, model: nn.Module, tokens: dict[str, Any], mask: torch.Tensor | None) -> None:
        """Note a training forward.

        Args:
            model: Whose forward it is.
            tokens: What `find_layout` takes of its batch besides the mask.
            mask: (B, T) attention mask, or None.
        """
        if not any(parameter.grad is not None for parameter in model.parameters()):
            self._before, self._now = self._now, []
        mask = torch.ones_like(tokens["joined"]) if mask is None else mask.cpu().bool()
        if len(self._now) <= MOST:
            self._now.append(tokens | {"mask": mask})

    def tokens_by_rows(self, computed: Callable[[dict[str, Any]], int]) -> dict[int, int]:
        """Rows of a forward to the tokens that the decoder computes in an optimiser step.

        The first is the size of the forwards that were seen; the others are theirs joined two by two, four by
        four and so on, up to all of a step.

        Args:
            computed: Gives the tokens that are computed for what `find_layout` takes.

        Returns:
            Empty before the end of a step, and where forwards have unequal numbers of rows.
        """
        step = self._before or self._now
        rows = {len(batch["mask"]) for batch in step}
        if len(rows) != 1 or len(step) > MOST:
            return {}
        sizes = [size for size in range(1, len(step) + 1) if len(step) % size == 0]
        return {
            size * min(rows): sum(computed(_join(step[at : at + size])) for at in range(0, len(step), size))
            for size in sizes
        }


def _join(batches: list[dict[str, Any]]) -> dict[str, Any]:
    columns = max(batch["mask"].shape[1] for batch in batches)

    def widened(rows: torch.Tensor, fill: int) -> torch.Tensor:
        return pad(rows, (0, columns - rows.shape[1]), value=fill)

    joined = {
        name: torch.cat([widened(batch[name], fill) for batch in batches]) for name, fill in FILL.items()
    }
    return joined | {"aligned": batches[0]["aligned"]}
