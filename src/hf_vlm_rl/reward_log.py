"""Means of reward functions, in the log of the trainer that calls them."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import TrainerCallback


class RewardLog(TrainerCallback):
    """Adds `rewards/<name>/mean` to every log entry of a trainer.

    The mean is over the rows of the step in which a function did not abstain, on all processes.

    Args:
        names: Of the reward functions.
    """

    def __init__(self, names: Sequence[str]):
        self.names = list(names)
        self._rows: list[tuple[float | None, ...]] = []

    def __deepcopy__(self, memo: dict) -> "RewardLog":
        return self  # a callback and the model that feeds it stay one

    def add(self, rewards: Sequence[Sequence[float | None]]) -> None:
        """Take in a batch: per function, one reward per row."""
        self._rows += zip(*rewards, strict=True)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **kwargs: Any) -> None:
        """Put the means into `logs`, for callbacks that follow, and into `state.log_history`."""
        # PPO also scores evaluation samples. It does so before a step's own rows, which come last.
        rows = self._rows[-getattr(args, "local_batch_size", len(self._rows)) :]
        self._rows = []
        given = [[reward for reward in column if reward is not None] for column in zip(*rows, strict=True)]
        given = given or [[] for _ in self.names]
        sums = torch.tensor([[sum(column), len(column)] for column in given], dtype=torch.float64)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            sums = sums.float().to(args.device)  # not every backend has 64-bit floats
            torch.distributed.all_reduce(sums)
        means = {
            f"rewards/{name}/mean": total / count
            for name, (total, count) in zip(self.names, sums.tolist(), strict=True)
            if count
        }
        if logs is not None:
            logs.update(means)
        if state.log_history:
            state.log_history[-1].update(means)
