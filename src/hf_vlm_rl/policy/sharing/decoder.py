"""Mixed into the text decoder: run the stock forward on the distinct tokens of a batch."""

from typing import Any

import torch
from transformers import Cache, DynamicCache

from ..._retype import Retyped, overriding
from ...compat import CACHE
from ..report import Refused
from .hooks import PACKED, PACKING, view
from .layout import LAYOUT, Layout
from .packing import Packing
from .token_inputs import take_tokens
from .visibility import DenseVisibility, Visibility


class VLMDecoder(Retyped):
    """The stock text decoder, which also takes the `Layout` of rows that share prefixes."""

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        @overriding(stock.forward)
        def forward(self: Any, kwargs: dict[str, Any]) -> Any:
            if (layout := kwargs.pop(LAYOUT, None)) is None:
                return stock.forward(self, **kwargs)
            cache = kwargs.get(CACHE)
            if cache is not None:
                kwargs[CACHE] = DynamicCache(config=self.config)
            try:
                output = stock.forward(view(self, PACKED), **_in_one_row(layout, kwargs))
            except Refused as refused:
                # A decoder that cannot fill a cache from a packed row may still train on one.
                raise Refused(str(refused), refused.lasting and cache is None) from refused
            output.last_hidden_state = _by_rows(layout, output.last_hidden_state)
            if cache is not None:
                _fill(cache, layout, output[CACHE])
                output[CACHE] = cache
            return output

        return {"forward": forward}


def _by_rows(layout: Layout, packed: torch.Tensor) -> torch.Tensor:
    """Hidden states (1, S, H) of the packed tokens as (B, T, H). Padding gets some real token's values."""
    return packed[0].index_select(0, layout.target).view(*layout.shape, -1)


def _fill(cache: Cache, layout: Layout, packed: Any) -> None:
    """Fill an empty cache of B rows with the keys and values (1, heads, S, d) of the packed tokens."""

    def by_rows(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[0].index_select(1, layout.target).unflatten(1, layout.shape).transpose(0, 1)

    for number, layer in enumerate(packed.layers):
        cache.update(by_rows(layer.keys), by_rows(layer.values), number)


def _in_one_row(layout: Layout, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The decoder's arguments for the packed sequence."""
    masks = _masks(layout, kwargs.pop("attention_mask", None))
    packed = take_tokens(layout.shape, layout.source.unsqueeze(0), kwargs)
    if packed.get("position_ids") is None:
        packed["position_ids"] = (layout.source % layout.shape[1]).unsqueeze(0)
    return packed | masks


def _masks(layout: Layout, mask: Any) -> dict[str, Any]:
    """The decoder's keywords for its mask and for the packing, made from the backbone's mask."""
    if isinstance(mask, dict):
        masks = {kind: _visibility(layout, one) for kind, one in mask.items()}
        return {"attention_mask": masks, PACKING: Packing(layout)}
    if isinstance(mask, torch.Tensor) and mask.ndim == 4:
        # Stock code hands a mask of four dimensions on unread, so a dummy will do; the packing has the mask.
        return {"attention_mask": mask.new_zeros(1, 1, 1, 1), PACKING: Packing(layout, mask)}
    if mask is not None and not (isinstance(mask, torch.Tensor) and mask.ndim == 2):
        raise _other_mask(mask)
    # Given no mask, transformers reads positions that restart as separate documents. A mask of ones says that
    # this is one sequence.
    ones = torch.ones(1, len(layout.source), dtype=torch.long, device=layout.source.device)
    return {"attention_mask": ones, PACKING: Packing(layout)}


def _visibility(layout: Layout, mask: Any) -> Visibility:
    """Who sees whom in one kind of layer, from the backbone's mask for it."""
    if mask is None:
        return Visibility(layout)
    if isinstance(mask, torch.Tensor) and mask.ndim == 4:
        return DenseVisibility(layout, mask)
    raise _other_mask(mask)


def _other_mask(mask: Any) -> Refused:
    return Refused(f"the backbone makes an attention mask of type {type(mask).__name__}", lasting=True)
