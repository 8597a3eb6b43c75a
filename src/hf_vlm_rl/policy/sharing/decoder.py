"""Mixed into the text decoder: run the stock forward on the distinct tokens of a batch."""

from typing import Any

import torch
from transformers import Cache, DynamicCache

from ..._retype import Retyped, overriding
from .cached import run_on_cache
from .hooks import PACKED, PACKING, view
from .layout import Layout
from .packing import Packing
from .switch import IN_ONE_ROW, ON_A_CACHE
from .token_inputs import take_tokens
from .visibility import DenseVisibility, UnknownInput, Visibility


class VLMDecoder(Retyped):
    """The stock text decoder, which also takes how the rows of a batch share their prefixes."""

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        @overriding(stock.forward)
        def forward(self: Any, kwargs: dict[str, Any]) -> Any:
            if (cut := kwargs.pop(ON_A_CACHE, None)) is not None:
                return run_on_cache(self, stock.forward, cut, kwargs)
            if (layout := kwargs.pop(IN_ONE_ROW, None)) is None:
                return stock.forward(self, **kwargs)
            cache = kwargs.get("past_key_values")
            if cache is not None:
                kwargs["past_key_values"] = DynamicCache(config=self.config)
            try:
                output = stock.forward(view(self, PACKED, layout), **_in_one_row(layout, kwargs))
            except UnknownInput as error:
                raise UnknownInput(str(error), error.lasting and cache is None) from error
            output.last_hidden_state = unpack(layout, output.last_hidden_state)
            if cache is not None:
                _fill(cache, layout, output.past_key_values)
                output.past_key_values = cache
            return output

        return {"forward": forward}


def unpack(layout: Layout, packed: torch.Tensor) -> torch.Tensor:
    """(1, S, H) back to (B, T, H). Padding gets some real token's values."""
    return packed[0].index_select(0, layout.target).view(*layout.shape, -1)


def _fill(cache: Cache, layout: Layout, packed: Any) -> None:
    """Give an empty cache of B rows the keys and values (1, heads, S, d) of the packed ones."""

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
    """The mask and the packing, of the mask that the backbone gives its decoder."""
    if isinstance(mask, dict):
        masks = {kind: _visibility(layout, one) for kind, one in mask.items()}
        return {"attention_mask": masks, PACKING: Packing(layout)}
    if isinstance(mask, torch.Tensor) and mask.ndim == 4:
        # Stock code hands a mask of four dimensions on as it is; what it says is in the packing.
        passed = mask.new_zeros(1, 1, 1, 1)
        return {"attention_mask": passed, PACKING: Packing(layout, DenseVisibility(layout, mask))}
    if mask is not None and not (isinstance(mask, torch.Tensor) and mask.ndim == 2):
        raise UnknownInput(f"the backbone makes an attention mask of type {type(mask).__name__}")
    # A mask of ones, because without one stock takes positions that begin again for other documents.
    ones = torch.ones(1, len(layout.source), dtype=torch.long, device=layout.source.device)
    return {"attention_mask": ones, PACKING: Packing(layout)}


def _visibility(layout: Layout, mask: Any) -> Visibility:
    """Of one kind of layer, as the backbone gives it."""
    if mask is None:
        return Visibility(layout)
    if isinstance(mask, torch.Tensor) and mask.ndim == 4:
        return DenseVisibility(layout, mask)
    raise UnknownInput(f"the backbone makes an attention mask of type {type(mask).__name__}")
