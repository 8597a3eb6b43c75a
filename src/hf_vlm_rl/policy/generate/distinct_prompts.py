"""The distinct prompts of a `generate` call, which fill a cache; a prefix that some begin with runs once."""

from functools import cached_property
from typing import Any

import torch
from transformers import Cache

from ...compat import CACHE
from ..caches.known_caches import keeps_all_keys
from ..images.inputs import model_inputs
from ..images.row_images import Rows
from ..report import Refused
from ..sharing.layout import LAYOUT, Layout
from ..sharing.share import layout_of


class DistinctPrompts:
    """The prompts of a call without repeats, (U, P) clean ids; all but their last tokens fill a cache."""

    def __init__(self, policy: Any, ids: torch.Tensor, mask: torch.Tensor, rows: Rows):
        self._policy, self._backbone, self._rows = policy, policy.base_model, rows
        self._ids, self._mask = ids, mask

    @cached_property
    def _positions(self) -> torch.Tensor | None:
        """(U, P - 1), as `generate` counts them."""
        counted = (self._mask.long().cumsum(dim=1) - 1).clamp(min=0)
        # Some models count columns, padding included, whatever `generate` has counted.
        prepared = self._policy.prepare_inputs_for_generation(
            self._ids, attention_mask=self._mask, position_ids=counted
        )
        positions = prepared.get("position_ids")
        return None if positions is None else positions[:, :-1]

    @cached_property
    def _counted_in_three(self) -> bool:
        """Whether the backbone counts positions itself, in three dimensions, because there are images."""
        return self._backbone.processing_class.state.family.grids and bool(self._rows.tickets)

    def layout(self) -> Layout | None:
        """How one row packs the prompts; None if that does not pay, or cannot fill the decoder's cache."""
        backbone = self._backbone
        if len(self._ids) < 2 or not backbone.sharing.packed or not keeps_all_keys(backbone.decoder.config):
            return None
        arguments = {"position_ids": None if self._counted_in_three else self._positions}
        try:
            return layout_of(backbone, arguments, self._rows.columns(slice(-1))).to(self._ids.device)
        except Refused:
            return None  # each distinct prompt is a row of its own

    def fill(self, cache: Cache, layout: Layout | None, sharded: bool) -> int:
        """Fill an empty cache with (U, heads, P - 1, d); returns the number of tokens that were computed.

        `layout` says how one row packs the prompts; None if each is a row. If weights are `sharded` over
        ranks, all of them call this function.
        """
        backbone, ids = self._backbone, self._ids
        inputs = model_inputs(backbone, ids, self._rows, {}, sharded)
        positions = self._positions
        if backbone.processing_class.state.family.grids:
            if "mm_encoder_outputs" in inputs:
                positions = None  # the backbone counts in three dimensions
            else:
                backbone.rope_deltas = ids.new_zeros(len(ids), 1)
        for name in inputs.keys() & set(backbone.family.token_types):
            inputs[name] = inputs[name][:, :-1]
        inputs |= {
            "input_ids": ids[:, :-1],
            "attention_mask": self._mask[:, :-1],
            "position_ids": positions,
            CACHE: cache,
            "use_cache": True,
        }
        if layout is not None:
            try:
                backbone(**inputs, **{LAYOUT: layout})
                return layout.computed
            except Refused:
                pass  # the cache is still empty, and each distinct prompt is a row of its own
        backbone(**inputs)
        return ids[:, :-1].numel()
