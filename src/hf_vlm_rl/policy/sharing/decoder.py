"""Mixed into the text decoder: pack the rows, run the stock forward on them, unpack."""

from typing import Any

import torch

from ..._retype import Retyped, overriding
from .hooks import LAYOUT
from .layout import Layout

# What a decoder takes for each token, and how to pack it is known.
PACKED = frozenset(
    {"attention_mask", "deepstack_visual_embeds", "inputs_embeds", "position_ids", "visual_pos_masks"}
)


class UnknownTokenInput(Exception):
    """A backbone gives its decoder a tensor of which nobody knows how to pack it; nothing was computed."""


class VLMDecoder(Retyped):
    """The stock text decoder, which also takes a `shared_prefix` layout."""

    @classmethod
    def _members(cls, stock: type) -> dict[str, Any]:
        @overriding(stock.forward)
        def forward(self, kwargs):
            layout = kwargs.pop(LAYOUT, None)
            if layout is None:
                return stock.forward(self, **kwargs)
            for name, value in kwargs.items():
                if isinstance(value, torch.Tensor) and name not in PACKED:
                    raise UnknownTokenInput(f"the decoder takes {name} for each token")
            mask = kwargs.get("attention_mask")
            if mask is not None and not (isinstance(mask, torch.Tensor) and mask.ndim == 2):
                raise UnknownTokenInput("the backbone makes the decoder's attention mask")
            output = stock.forward(self, **_pack(layout, kwargs))
            output.last_hidden_state = unpack(layout, output.last_hidden_state)
            return output

        return {"forward": forward}


def unpack(layout: Layout, packed: torch.Tensor) -> torch.Tensor:
    """(1, S, H) back to (B, T, H). Padding gets some real token's values."""
    return packed[0].index_select(0, layout.target).view(*layout.shape, -1)


def _pack(layout: Layout, kwargs: dict[str, Any]) -> dict[str, Any]:
    embeddings = kwargs["inputs_embeds"]
    packed = embeddings.flatten(0, 1).index_select(0, layout.source).unsqueeze(0)
    positions = kwargs.get("position_ids")
    if positions is None:
        positions = layout.positions.unsqueeze(0)
    else:  # (B, T), or (3 or 4, B, T) for multimodal positions
        rows = positions.flatten(-2, -1)
        positions = rows.index_select(-1, layout.source).unsqueeze(-2)
    kwargs = kwargs | {
        "inputs_embeds": packed,
        "position_ids": positions,
        # Four dimensions: taken as prepared, so that no dense mask is made. Attention ignores it.
        "attention_mask": packed.new_zeros(1, 1, 1, 1),
        LAYOUT: layout,
    }
    return kwargs | _pack_deep_features(layout, kwargs)


def _pack_deep_features(layout: Layout, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Qwen3-VL adds features to hidden states at image tokens: keep those of the packed tokens."""
    mask = kwargs.get("visual_pos_masks")
    if mask is None:
        return {}
    flat = mask.flatten()
    packed = flat.index_select(0, layout.source)
    order = (flat.cumsum(0) - 1).index_select(0, layout.source)[packed]
    features = [layer.index_select(0, order) for layer in kwargs["deepstack_visual_embeds"]]
    return {"visual_pos_masks": packed.unsqueeze(0), "deepstack_visual_embeds": features}
