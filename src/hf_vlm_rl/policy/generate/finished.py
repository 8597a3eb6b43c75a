"""Rows that are finished leave the batch, so that no row waits for the longest.

The sampling loop stays transformers' own and goes on with all B rows: random numbers, processors, criteria
and streamers are what they would be. Only the model runs on fewer rows. A finished row's logits are zeros,
and the loop puts padding in the place of what it draws from them.

Shapes: B rows, b of them still in the cache, V words.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch
from transformers import Cache, EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList

from ..._scoped import scoped
from ...compat import CACHE
from ..arguments import choose_rows, require_rows
from ..caches.known_caches import require_known_cache
from ..foreign_hooks import foreign_hook
from ..report import Refused
from ..rotary import require_steady
from .processors import ROW_BY_ROW

# Finished rows leave once they are this share of the rows in the cache, as leaving copies the cache.
SHARE = 0.125

# Steps between two counts of finished rows on a device other than a CPU, as counting waits for it.
PATIENCE = 8

# Why rows of the `generate` that runs in this thread may not leave; None if they may.
_kept: ContextVar[str | None] = ContextVar("hf_vlm_rl_kept_rows", default=None)

# The batch of the `generate` that runs in this thread.
_running: ContextVar["Batch | None"] = ContextVar("hf_vlm_rl_batch", default=None)


def keeping_rows(reason: str | None) -> AbstractContextManager[None]:
    """Inside the block, no row leaves this thread's `generate`, for this reason; None forbids nothing."""
    return scoped(_kept, reason)


class Batch:
    """The B rows of one `generate` of a policy, whose cache for this call they fill.

    Attributes:
        unfinished: (B,) bool.
        left: (b,) numbers of the rows in the cache; None while all are.
    """

    def __init__(self, policy: Any, cache: Cache, rows: int, device: torch.device):
        self.policy, self.cache, self.rows = policy, cache, rows
        self.unfinished = torch.ones(rows, dtype=torch.bool, device=device)
        self.left: torch.Tensor | None = None
        self._refused = False
        self._steps = 0

    def forward(self, stock: Callable[[dict[str, Any]], Any], kwargs: dict[str, Any]) -> Any:
        """The output, with logits (B, 1, V), of a forward with `kwargs` for B rows, run for those left."""
        report = self.policy.base_model.report
        if not self._refused:
            self._let_leave(kwargs)
        report.count(row_steps=self.rows, row_steps_run=self.rows if self.left is None else len(self.left))
        if self.left is None:
            return stock(kwargs)
        try:
            require_rows(kwargs, self.rows)
        except Refused as refused:
            raise NotImplementedError(
                f"Rows have left the batch, and now {refused}, of which nobody knows how to leave rows out. "
                "Load the policy with sharing=False."
            ) from refused
        output = stock(choose_rows(kwargs, self.left))
        logits = output.logits
        all_logits = logits.new_zeros(self.rows, *logits.shape[1:])
        output.logits = all_logits.index_copy_(0, self.left.to(logits.device), logits)
        return output

    def _let_leave(self, kwargs: Mapping[str, Any]) -> None:
        """Drop finished rows from the cache, if there are enough of them."""
        self._steps += 1
        if self.unfinished.device.type != "cpu" and self._steps % PATIENCE:
            return
        rows = self.unfinished.nonzero().flatten()
        present = self.rows if self.left is None else len(self.left)
        # At least one row stays: while other ranks still decode, this rank's forwards must go on, or
        # collectives hang.
        if not 0 < len(rows) <= present * (1 - SHARE):
            return
        if self.left is None:
            try:
                # Backbones without positions in several dimensions have no such attribute.
                deltas = getattr(self.policy.base_model, "rope_deltas", None)
                if kwargs.get("position_ids") is None and deltas is not None:
                    raise Refused("the model keeps its rows' positions to itself")
                require_known_cache(self.cache)
                require_rows(kwargs, self.rows)
            except Refused as refused:
                self._refused = True
                self.policy.base_model.report.refuse("rows_kept", refused)
                return
        places = rows if self.left is None else torch.searchsorted(self.left, rows)
        cache: Any = self.cache
        cache.reorder_cache(places)
        self.left = rows


class WatchedCriteria(StoppingCriteriaList):
    """Stopping criteria that tell a batch which rows they end."""

    def __init__(self, criteria: StoppingCriteriaList, batch: Batch):
        super().__init__(criteria)
        self.batch = batch

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> torch.BoolTensor:
        """(B,) which rows end, by any criterion."""
        ended = super().__call__(input_ids, scores, **kwargs)
        self.batch.unfinished &= ~ended
        return ended


def sample(policy: Any, stock: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Run `stock`, the sampling loop of transformers; the model drops finished rows from its batch."""
    backbone, rows = policy.base_model, len(kwargs["input_ids"])
    batch = None
    may_end_early = any(type(criterion) is not MaxLengthCriteria for criterion in kwargs["stopping_criteria"])
    if backbone.sharing.mode is not False and rows > 1 and may_end_early:
        try:
            _require_rows_by_themselves(policy, kwargs)
            batch = Batch(policy, kwargs[CACHE], rows, kwargs["input_ids"].device)
            kwargs = kwargs | {"stopping_criteria": WatchedCriteria(kwargs["stopping_criteria"], batch)}
        except Refused as refused:
            backbone.report.refuse("rows_kept", refused)
    with scoped(_running, batch):
        return stock(**kwargs)


def running_batch(policy: Any, kwargs: Mapping[str, Any]) -> Batch | None:
    """The batch of the running `generate`, if this forward of `policy` has its cache; else None."""
    batch = _running.get()
    if batch is None or batch.policy is not policy or kwargs.get(CACHE) is not batch.cache:
        return None
    return batch


def _require_rows_by_themselves(policy: Any, kwargs: Mapping[str, Any]) -> None:
    """The gate: refuse a `generate` that looks at finished rows, or at several rows at once."""
    config, criteria = kwargs["generation_config"], kwargs["stopping_criteria"]
    if (reason := _kept.get()) is not None:
        raise Refused(reason)
    if policy.config.is_encoder_decoder:
        raise Refused("the model has an encoder")
    if not config.use_cache:
        raise Refused("use_cache is False")
    if config.return_dict_in_generate:
        raise Refused("return_dict_in_generate gives scores and a cache of finished rows, too")
    if type(criteria) is not StoppingCriteriaList:
        raise Refused(f"the stopping criteria are a {type(criteria).__name__}")
    if not any(isinstance(criterion, EosTokenCriteria) for criterion in criteria):
        raise Refused("there is no end-of-sequence token, without which finished rows go on")
    for processor in kwargs["logits_processor"]:
        if type(processor) not in ROW_BY_ROW:
            raise Refused(f"{type(processor).__name__} may look at all rows")
    lengths = [criterion.max_length for criterion in criteria if isinstance(criterion, MaxLengthCriteria)]
    require_steady(min(lengths, default=math.inf), policy.base_model.sharing.steady_positions)
    if (home := foreign_hook(policy)) is not None:
        raise Refused(f"a hook of {home} is on the model")
    require_known_cache(kwargs.get(CACHE))
