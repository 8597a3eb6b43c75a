"""`RewardFunctionModel`: ordinary TRL reward functions where PPO wants a reward model, and their log."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback
from transformers.modeling_outputs import BaseModelOutput

from ..errors import RewardError
from ..processing.encoded_rows import read_rows
from ..processing.tokenizer import VLMTokenizer
from ..rewards.calling import call, columns_as_lists, unique_names


class RewardFunctionModel(nn.Module):
    """Lets PPO train on verifiable rewards.

    ```python
    reward_model = RewardFunctionModel([is_right, is_short], policy.processing_class, weights=[1, 0.1])
    trainer = PPOTrainer(reward_model=reward_model, callbacks=[reward_model.callback], ...)
    ```

    PPO indexes the scores of a reward model at the position where a completion ends; here all
    positions of a row have the row's reward.

    Args:
        reward_funcs: One function or several, as for GRPO: called once per batch with the keywords
            `prompts` (messages, image blocks empty), `completions` ([[{"role": "assistant",
            "content": text}], ...]), `completion_ids`, and one list per column that
            `encode_prompt` was given. They return one number per completion, or None to abstain.
        processing_class: The policy's.
        weights: One factor per function, default 1. A row's reward is the weighted sum over the
            functions that did not abstain.

    Attributes:
        callback: A `TrainerCallback` that adds `rewards/<name>/mean` to the trainer's log and
            console. Wandb and other reporters run before a user's callbacks: see `log_to`.

    Raises:
        TypeError: If a function is not callable, or `processing_class` is not a policy's.
        ValueError: If there is no function, or `weights` has another length.
    """

    base_model_prefix = "functions"

    def __init__(
        self,
        reward_funcs: Callable | Sequence[Callable],
        processing_class: Any,
        weights: Sequence[float] | None = None,
    ):
        super().__init__()
        # A policy's `tokenizer` has it, too.
        processing_class = getattr(processing_class, "processing_class", processing_class)
        if not isinstance(processing_class, VLMTokenizer):
            raise TypeError(
                f"Got processing_class={type(processing_class).__name__}. Expected policy.processing_class."
            )
        functions = [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
        weights = [1.0] * len(functions) if weights is None else list(weights)
        if not functions or len(weights) != len(functions):
            raise ValueError(
                f"Got {len(functions)} reward functions and {len(weights)} weights. Expected at least "
                "one function, and one weight for each."
            )
        names = unique_names(functions)
        self.callback = RewardLog(names)
        weighed = list(zip(names, functions, weights, strict=True))
        self.functions = _Functions(weighed, processing_class, self.callback)
        self.score = nn.Identity()

    def log_to(self, trainer: Any) -> None:
        """Log through a built trainer, ahead of its reporters, so that all of them get the means."""
        callbacks = trainer.callback_handler.callbacks
        if self.callback in callbacks:
            callbacks.remove(self.callback)
        callbacks.insert(0, self.callback)

    def forward(self, **kwargs: Any) -> torch.Tensor:
        """The rewards, (B,); arguments as for `functions`."""
        return self.functions(**kwargs).hidden_states[-1][:, 0, 0]


class _Functions(nn.Module):
    """Where PPO expects the reward model's backbone."""

    def __init__(self, named: list[tuple[str, Callable, float]], processing_class: Any, log: "RewardLog"):
        super().__init__()
        self.named = named
        self.processing_class = processing_class
        self.log = log

    @torch.no_grad()
    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **kwargs: Any
    ) -> BaseModelOutput:
        """`hidden_states[-1]` of shape (B, L, 1): a row's reward, at all its positions.

        `input_ids` (B, L) are left-padded prompts from `encode_prompt`, completions, padding.

        Raises:
            RewardError: If a function raises or returns something else than one finite number or None for
                each row, or if all functions abstain from a row.
            TicketError: If a row's prompt is unknown or damaged.
        """
        rows = read_rows(self.processing_class, input_ids, attention_mask)
        texts = self.processing_class.batch_decode(
            [row.completion_ids for row in rows], skip_special_tokens=True
        )
        columns = columns_as_lists([row.note.columns for row in rows])
        arguments: dict[str, list[Any]] = {
            "prompts": [row.note.prompt for row in rows],
            "completions": [[{"role": "assistant", "content": text}] for text in texts],
            "completion_ids": [row.completion_ids for row in rows],
        }
        rewards = [call(function, name, arguments | columns) for name, function, _ in self.named]
        totals = []
        for row, values in enumerate(zip(*rewards, strict=True)):
            pairs = zip(values, self.named, strict=True)
            weighted = [weight * reward for reward, (_, _, weight) in pairs if reward is not None]
            if not weighted:
                raise RewardError(
                    f"Row {row} (columns {dict(rows[row].note.columns)!r:.300}): every reward function "
                    f"returned None ({', '.join(self.log.names)}). Expected a reward from at least one."
                )
            totals.append(sum(weighted))
        self.log.add(rewards)
        scores = torch.tensor(totals, dtype=torch.float32, device=input_ids.device)
        return BaseModelOutput(hidden_states=(scores[:, None, None].expand(*input_ids.shape, 1),))


class RewardLog(TrainerCallback):
    """Adds `rewards/<name>/mean` to every log entry of a trainer.

    The mean is over the rows of the step in which a function did not abstain, on all processes.
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
        # PPO also scores evaluation samples. It does so before a step's own rows, which come last. Its
        # arguments alone have `local_batch_size`; in other trainers all rows count.
        rows = self._rows[-getattr(args, "local_batch_size", len(self._rows)) :]
        self._rows = []
        columns = [[reward for reward in column if reward is not None] for column in zip(*rows, strict=True)]
        columns = columns or [[] for _ in self.names]
        sums = torch.tensor([[sum(column), len(column)] for column in columns], dtype=torch.float64)
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
