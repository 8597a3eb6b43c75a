"""The distinct prompts of a `generate` call, and how they fill a cache: what they begin with is run once."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from ..inputs import model_inputs
from ..row_images import RowImages
from .layout import Layout
from .share import agrees, token_keys
from .switch import IN_ONE_ROW
from .visibility import UnknownInput


class DistinctPrompts:
    """Prompts that differ, all but their last tokens.

    Args:
        policy: A policy.
        ids: (U, P), with clean placeholders.
        mask: (U, P).
        rows: The images of each prompt.
    """

    def __init__(self, policy: Any, ids: torch.Tensor, mask: torch.Tensor, rows: Sequence[RowImages]):
        self._policy, self._backbone, self._rows = policy, policy.base_model, list(rows)
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
        """Whether the backbone counts positions itself, as it does of images."""
        return self._backbone.processing_class.state.family.grids and any(row.tickets for row in self._rows)

    def layout(self) -> Layout | None:
        """The prompts packed; None where that does not pay, or the decoder cannot fill a cache so."""
        backbone = self._backbone
        layers = DynamicCache(config=backbone.decoder.config).layers
        keeps_all = attends_to_all(backbone.decoder.config) and all(
            type(layer) is DynamicLayer for layer in layers
        )
        if len(self._ids) < 2 or backbone.sharing.way_in_words != "packed" or not keeps_all:
            return None
        arguments = {
            "input_ids": self._ids[:, :-1],
            "attention_mask": self._mask[:, :-1],
            "position_ids": None if self._counted_in_three else self._positions,
        }
        tokens = token_keys(backbone, arguments, self._rows)
        layout = backbone.sharing.layout_of_prompts(tokens, arguments)
        if layout is None or not agrees(backbone):
            return None
        return layout.to(self._ids.device)

    def fill(self, cache: Cache, layout: Layout | None, sharded: bool) -> int:
        """Run the prompts.

        Args:
            cache: An empty one, which gets (U, heads, P - 1, d).
            layout: How the prompts are packed; None for rows of their own.
            sharded: The weights are spread over ranks, which all are here and must do the same.

        Returns:
            The tokens that the decoder computed.
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
            "past_key_values": cache,
            "use_cache": True,
        }
        if layout is not None:
            try:
                backbone(**inputs, **{IN_ONE_ROW: layout})
                return layout.computed
            except UnknownInput:
                pass  # the backbone has counted it
        backbone(**inputs)
        return ids[:, :-1].numel()


def attends_to_all(config: Any) -> bool:
    """Whether all layers of a decoder keep keys and values of all tokens, and nothing else.

    Args:
        config: The text config.
    """
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return False
    return not getattr(config, "sliding_window", None) or not getattr(config, "use_sliding_window", True)
