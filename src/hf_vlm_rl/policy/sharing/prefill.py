"""One prompt, one prefill: `generate` runs a prompt once, and its rows share one copy of the cache."""

from collections.abc import Sequence
from typing import Any

import torch

from ..inputs import model_inputs
from ..locate import RowImages
from ..ranks import most
from .prefix_cache import share_prompts
from .share import keys_of_rows

# Settings of `generate` under which rows are not one prompt each, or the cache is not a plain one.
PLAIN = {"num_beams": 1, "num_return_sequences": 1, "cache_implementation": None, "use_cache": True}

UNUSUAL = ("assistant_model", "inputs_embeds", "past_key_values", "position_ids", "prompt_lookup_num_tokens")


def prefill_once(
    policy: Any, kwargs: dict[str, Any], rows: Sequence[RowImages], sharded: bool
) -> dict[str, Any] | None:
    """Run the distinct prompts of a batch through the model, all but their last token.

    Args:
        policy: A policy.
        kwargs: The arguments of `generate`, located (see `locate.locate`).
        rows: The images of each row.
        sharded: The weights are spread over ranks, which all are here and must do the same.

    Returns:
        Arguments for the stock `generate` with a filled key-value cache and no images; None where
        prompts do not repeat or the settings need a plain run.
    """
    backbone = policy.base_model
    if not backbone.sharing.may_prefill(_reason(policy, kwargs)):
        return None
    ids, mask = kwargs["input_ids"], kwargs.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    keys = torch.cat([keys_of_rows(backbone, ids, rows), mask.cpu().long()], dim=1)
    _, inverse = torch.unique(keys, dim=0, return_inverse=True)
    first = [int((inverse == number).nonzero()[0]) for number in range(int(inverse.max()) + 1)]
    pays = backbone.sharing.prefill_pays((len(rows) - len(first)) * ids.shape[1])
    if not (most(pays, ids.device) if sharded else pays):
        return None
    where = torch.tensor(first, device=ids.device)
    inverse = inverse.to(ids.device)
    cache = _prefill(policy, ids[where], mask[where], [rows[row] for row in first], sharded)
    cache = share_prompts(cache, inverse, mask[where, :-1])
    if backbone.processing_class.state.family.grids:
        backbone.rope_deltas = backbone.rope_deltas[inverse]
    backbone.sharing.prompts += len(rows)
    backbone.sharing.prefilled += len(first)
    return kwargs | {"past_key_values": cache, "attention_mask": mask}


def _prefill(policy: Any, ids: torch.Tensor, mask: torch.Tensor, rows: list[RowImages], sharded: bool) -> Any:
    backbone = policy.base_model
    inputs = model_inputs(backbone, ids, rows, {}, sharded)
    positions = (mask.long().cumsum(dim=1) - 1).clamp(min=0)  # as `generate` counts them
    if backbone.processing_class.state.family.grids:
        if "image_grid_thw" in inputs:
            positions = None  # the backbone counts in three dimensions
        else:
            backbone.rope_deltas = ids.new_zeros(len(ids), 1)
    types = backbone.processing_class.state.family.token_types
    if types in inputs:
        inputs[types] = inputs[types][:, :-1]
    output = backbone(
        input_ids=ids[:, :-1],
        attention_mask=mask[:, :-1],
        position_ids=None if positions is None else positions[:, :-1],
        use_cache=True,
        **inputs,
    )
    return output.past_key_values


def _reason(policy: Any, kwargs: dict[str, Any]) -> str | None:
    settings = kwargs.get("generation_config") or policy.generation_config
    for name, plain in PLAIN.items():
        value = kwargs.get(name, getattr(settings, name, None))
        if value is not None and value != plain:
            return f"generate: {name} is {value}"
    if kwargs["input_ids"].shape[1] < 2:
        return "generate: the prompt is one token"
    given = [name for name in UNUSUAL if kwargs.get(name) is not None]
    return f"generate: {given[0]} is given" if given else None
