"""Rows that are finished leave the batch, so that no row waits for the longest.

The sampling loop stays transformers' own and goes on with all B rows: random numbers, processors, criteria
and streamers are what they would be. Only the model runs on fewer rows. A finished row's logits are zeros,
and the loop puts padding in the place of what it draws from them.

Shapes: B rows, b of them still in the cache, V words.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from transformers import Cache, EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList

from ..foreign_hooks import foreign_hook
from ..rotary import unsteady
from ..sharing.known_caches import unknown_cache
from .drafts import keys_for
from .processors import crosses_rows
from .refusals import refusal, refusal_of_step
from .rows import choose_arguments, choose_cache, unknown_argument
from .speculation import Done, Speculation

# Rows leave together once they are this share of those in the cache: each time, the cache is copied.
SHARE = 0.125

# How many steps a device other than a CPU goes without being asked how many rows are finished.
PATIENCE = 8

# Why rows of the `generate` that runs in this thread may not leave, if so.
_kept: ContextVar[str | None] = ContextVar("hf_vlm_rl_kept_rows", default=None)

# The batch of the `generate` that runs in this thread.
_running: ContextVar["Batch | None"] = ContextVar("hf_vlm_rl_batch", default=None)


@contextmanager
def keeping_rows(reason: str | None) -> Iterator[None]:
    """No row of this thread's `generate` leaves inside the block, for this reason; None forbids nothing."""
    token = _kept.set(reason)
    try:
        yield
    finally:
        _kept.reset(token)


class Batch:
    """The rows of one `generate`.

    Args:
        policy: The policy.
        cache: Its cache for this call.
        rows: B.
        device: Of the ids.
        speculation: What takes over behind the first token, if anything.

    Attributes:
        unfinished: (B,) bool.
        left: (b,) numbers of the rows in the cache; None while all are.
        ids: (B, t) what was sampled so far, prompts included; None before the first token.
        reason: Why no row leaves any more, if so.
    """

    def __init__(
        self,
        policy: Any,
        cache: Cache,
        rows: int,
        device: torch.device,
        speculation: Speculation | None = None,
    ):
        self.policy, self.cache, self.rows = policy, cache, rows
        self.unfinished = torch.ones(rows, dtype=torch.bool, device=device)
        self.left: torch.Tensor | None = None
        self.ids: torch.Tensor | None = None
        self.reason: str | None = None
        self._speculation = speculation
        self._steps = 0

    def forward(self, stock: Callable[[dict[str, Any]], Any], kwargs: dict[str, Any]) -> Any:
        """The policy's forward, run for the rows that are left.

        Args:
            stock: The forward for any rows.
            kwargs: Its arguments for B rows.

        Returns:
            Its output, with logits (B, 1, V).

        Raises:
            Done: If all rows were sampled to their ends.
        """
        account = self.policy.base_model.rollouts
        if self._speculation is not None and self.ids is not None:
            reason = self._unknown(kwargs) or refusal_of_step(self.policy, kwargs)
            if reason is None:
                raise Done(self._speculation.run(stock, kwargs, self.ids))
            account.not_speculated[reason] += 1
            self._speculation = None
        if self.reason is None:
            self._let_leave(kwargs)
        account.steps += self.rows
        account.steps_run += self.rows if self.left is None else len(self.left)
        if self.left is None:
            return stock(kwargs)
        reason = unknown_argument(kwargs, self.rows)
        if reason is not None:
            raise NotImplementedError(
                f"Rows have left the batch, and now {reason}, of which nobody knows how to leave rows out. "
                "Load the policy with sharing=False."
            )
        output = stock(choose_arguments(kwargs, self.left))
        logits = output.logits
        every = logits.new_zeros(self.rows, *logits.shape[1:])
        output.logits = every.index_copy_(0, self.left.to(logits.device), logits)
        return output

    def _let_leave(self, kwargs: Mapping[str, Any]) -> None:
        """Leave finished rows out of the cache, if they are enough."""
        self._steps += 1
        if self.unfinished.device.type != "cpu" and self._steps % PATIENCE:
            return
        rows = self.unfinished.nonzero().flatten()
        present = self.rows if self.left is None else len(self.left)
        # Other ranks may need more steps of this one: some row stays.
        if not 0 < len(rows) <= present * (1 - SHARE):
            return
        if self.left is None:
            self.reason = self._unknown(kwargs)
            if self.reason is not None:
                self.policy.base_model.rollouts.kept[self.reason] += 1
                return
        places = rows if self.left is None else torch.searchsorted(self.left, rows)
        choose_cache(self.cache, places)
        self.left = rows

    def _unknown(self, kwargs: Mapping[str, Any]) -> str | None:
        """Why nobody knows how to leave rows out of a step; None if it is known."""
        # Backbones without positions in several dimensions have no such attribute.
        kept = getattr(self.policy.base_model, "rope_deltas", None)
        if kwargs.get("position_ids") is None and kept is not None:
            return "the model keeps its rows' positions to itself"
        return unknown_cache(self.cache) or unknown_argument(kwargs, self.rows)


class WatchedCriteria(StoppingCriteriaList):
    """Stopping criteria that tell a batch which rows they end.

    Args:
        criteria: The criteria.
        batch: Whose rows they end.
    """

    def __init__(self, criteria: StoppingCriteriaList, batch: Batch):
        super().__init__(criteria)
        self.batch = batch

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> torch.BoolTensor:
        """(B,) which rows end, by any criterion."""
        ended = super().__call__(input_ids, scores, **kwargs)
        self.batch.unfinished &= ~ended
        self.batch.ids = input_ids
        return ended


def sample(policy: Any, stock: functools.partial[Any], kwargs: dict[str, Any]) -> Any:
    """Run the sampling loop of transformers, which finished rows leave, or all rows for a loop with drafts.

    Args:
        policy: A policy.
        stock: The stock loop of its class, bound.
        kwargs: Its arguments.
    """
    backbone, rows = policy.base_model, len(kwargs["input_ids"])
    leave = backbone.sharing.mode is not False and rows > 1 and _may_end_early(kwargs["stopping_criteria"])
    reason = None
    if leave or backbone.rollouts.speculation:
        reason = _kept.get() or _reason(policy, kwargs)
    if leave and reason is not None:
        backbone.rollouts.kept[reason] += 1
    speculation = None
    if backbone.rollouts.speculation:
        against, keys = reason or refusal(policy, stock.func, kwargs), keys_for(rows)
        if against is None and keys is None:
            against = "prompts cannot be told apart"
        if against is None and keys is not None:
            speculation = Speculation(policy, kwargs, keys)
        else:
            backbone.rollouts.not_speculated[against] += 1
    batch = None
    if (leave and reason is None) or speculation is not None:
        batch = Batch(policy, kwargs["past_key_values"], rows, kwargs["input_ids"].device, speculation)
        if not leave:
            batch.reason = "sharing is False"
        kwargs = kwargs | {"stopping_criteria": WatchedCriteria(kwargs["stopping_criteria"], batch)}
    token = _running.set(batch)
    try:
        return stock(**kwargs)
    except Done as done:
        return done.sequences
    finally:
        _running.reset(token)


def running_batch(policy: Any, kwargs: Mapping[str, Any]) -> Batch | None:
    """The batch that a forward of `policy` belongs to: it has the cache of the `generate` that runs."""
    batch = _running.get()
    if batch is None or batch.policy is not policy or kwargs.get("past_key_values") is not batch.cache:
        return None
    return batch


def _may_end_early(criteria: StoppingCriteriaList) -> bool:
    """Whether a row may end before the longest completion that was asked for."""
    return any(type(criterion) is not MaxLengthCriteria for criterion in criteria)


def _reason(policy: Any, kwargs: Mapping[str, Any]) -> str | None:
    """Why all rows stay until the last is finished; None if they may leave."""
    config, criteria = kwargs["generation_config"], kwargs["stopping_criteria"]
    if policy.config.is_encoder_decoder:
        return "the model has an encoder"
    if not config.use_cache:
        return "use_cache is False"
    if config.return_dict_in_generate:
        return "return_dict_in_generate gives scores and a cache of finished rows, too"
    if type(criteria) is not StoppingCriteriaList:
        return f"the stopping criteria are a {type(criteria).__name__}"
    if not any(isinstance(criterion, EosTokenCriteria) for criterion in criteria):
        return "there is no end-of-sequence token, without which finished rows go on"
    crossing = crosses_rows(kwargs["logits_processor"])
    if crossing is not None:
        return f"{crossing} may look at all rows"
    lengths = [criterion.max_length for criterion in criteria if isinstance(criterion, MaxLengthCriteria)]
    far = unsteady(min(lengths, default=math.inf), policy.base_model.sharing.steady_positions)
    if far is not None:
        return far
    hook = foreign_hook(policy)
    if hook is not None:
        return f"a hook of {hook} is on the model"
    return unknown_cache(kwargs.get("past_key_values"))
