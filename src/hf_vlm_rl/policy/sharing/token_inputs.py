"""What a decoder takes for each token of a batch, for some of the tokens."""

from typing import Any

import torch

from .visibility import UnknownInput

# Tensors (B, T, ...) that a decoder takes for each token, besides positions and masks.
OF_TOKENS = frozenset({"inputs_embeds", "moe_mm_token_type_ids", "per_layer_inputs"})

# What some backbones hand on to a decoder, which leaves it to the head behind it.
OF_THE_HEAD = frozenset({"logits_to_keep"})

# Which tokens are images, and features that are added to their hidden states in several layers.
DEEP = {"visual_pos_masks": "deepstack_visual_embeds", "vision_mask": "deepstack_features"}


def take_tokens(shape: tuple[int, int], source: torch.Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The decoder's arguments, without masks, for some tokens of a batch.

    Args:
        shape: (B, T).
        source: (R, L) indices of the tokens in the flattened batch.
        kwargs: The arguments for the whole batch.

    Raises:
        UnknownInput: If there is a tensor of which nobody knows what it says of tokens.
    """
    taken = {}
    for name, value in kwargs.items():
        if value is None or name in OF_THE_HEAD:
            continue
        if name == "position_ids":
            # (B, T), or (3 or 4, B, T) for multimodal positions, with 1 for B where all rows have the same.
            taken[name] = value.expand(*value.shape[:-2], *shape).flatten(-2, -1)[..., source]
        elif name in OF_TOKENS:
            taken[name] = _of_tokens(shape, value, source)
        elif name in DEEP and kwargs.get(DEEP[name]) is not None:
            taken |= _deep_features(shape, kwargs, name, source)
        elif isinstance(value, torch.Tensor) and name not in DEEP.values():
            raise UnknownInput(f"the decoder takes {name} for each token")
    return kwargs | taken


def _of_tokens(shape: tuple[int, int], tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """(B, T, ...) to (R, L, ...)."""
    flat = tensor.expand(*shape, *tensor.shape[2:]).flatten(0, 1)
    return flat.index_select(0, source.flatten()).unflatten(0, source.shape)


def _deep_features(
    shape: tuple[int, int], kwargs: dict[str, Any], name: str, source: torch.Tensor
) -> dict[str, Any]:
    """Some decoders add features to hidden states at image tokens: keep those of the tokens."""
    tokens = kwargs[name].flatten(0, 1)
    images = _of_tokens(shape, kwargs[name], source)
    kept = images.flatten(0, 1)
    if tokens.ndim == 2:  # (B, T, H), alike in the last dimension
        tokens, kept = tokens[:, 0], kept[:, 0]
    order = (tokens.cumsum(0) - 1).index_select(0, source.flatten())[kept]
    layers = kwargs[DEEP[name]]
    if isinstance(layers, dict):
        taken = {number: layer.index_select(0, order) for number, layer in layers.items()}
        return {name: images, DEEP[name]: taken}
    return {name: images, DEEP[name]: [layer.index_select(0, order) for layer in layers]}
