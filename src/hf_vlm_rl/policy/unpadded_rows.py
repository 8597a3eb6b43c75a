"""Pads the rows of a trainer that joins several in one without padding, and joins the output's rows again.

Such trainers number the tokens of each row from 0 and pass no mask. Images need more than these numbers
(positions in three dimensions), and no row may see its neighbour, whatever attention the model has. So the
model runs on a padded batch. B joined rows of T tokens hold S rows of at most L tokens; H hidden size.
"""

from collections.abc import Collection, Mapping
from typing import Any

import torch

from ..compat import CACHE
from ..errors import TicketError
from .arguments import TRIE, says_something
from .trie import Placement

# Arguments that tell attention kernels where the rows begin and end.
LENGTHS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx")
# Outputs of a forward for each token besides the last hidden state: they are not joined again.
PER_TOKEN = ("hidden_states", "attentions", "router_logits")
# Arguments that may come along: they concern no single token of the joined rows.
PASSED = ("logits_to_keep", "num_items_in_batch", "return_dict", "use_cache")


def joined_rows(kwargs: Mapping[str, Any]) -> Placement | None:
    """Where the joined rows of a forward stand in a padded batch; None if the trainer has joined none.

    Its rows are joined ones if it has no mask, no cache, and `position_ids` (B, T) that count from 0, again
    and again.
    """
    positions, input_ids = kwargs.get("position_ids"), kwargs.get("input_ids")
    others = (kwargs.get("attention_mask"), kwargs.get(CACHE))
    if input_ids is None or positions is None or any(other is not None for other in others):
        return None
    if positions.shape != input_ids.shape or bool((positions[:, 0] != 0).any()):
        return None
    starts = positions == 0
    if not bool((starts[:, 1:] | (positions[:, 1:] == positions[:, :-1] + 1)).all()):
        return None
    rows, columns = starts.flatten().long().cumsum(dim=0) - 1, positions.flatten()
    paths = rows.new_full((int(rows[-1]) + 1, int(columns.max()) + 1), -1)
    paths[rows, columns] = torch.arange(len(rows), device=rows.device)
    return Placement(paths, rows * paths.shape[1] + columns, input_ids.shape)


def lay_apart(
    placement: Placement, kwargs: Mapping[str, Any], pad_token_id: int, vision: Collection[str]
) -> dict[str, Any]:
    """The arguments of a forward for the padded batch.

    `vision` has names of arguments that only say how images are encoded; stock's heads pass some on.

    Raises:
        TicketError: If another argument comes along, or one asks for outputs that `lay_together` cannot join.
    """
    replaced = {"input_ids", "position_ids", *LENGTHS, *TRIE}
    others = {name: value for name, value in kwargs.items() if name not in replaced and value is not None}
    passed_on = {*PASSED, *vision}
    unknown = sorted(name for name in others if says_something(others[name]) and name not in passed_on)
    if others.get("return_dict") is False:
        unknown.append("return_dict=False")
    if unknown:
        raise TicketError(
            f"Got {unknown} for rows that are packed without padding and have images. Expected none of "
            "these (of experts, router_aux_loss_coef=0); or rows that are padded (packing=False, "
            "padding_free=False)."
        )
    ids = placement.apart(kwargs["input_ids"], pad_token_id)
    mask = placement.apart(torch.ones_like(kwargs["input_ids"]), 0)
    return others | {"input_ids": ids, "attention_mask": mask, "use_cache": False}


def lay_together(placement: Placement, output: Any) -> Any:
    """The output of a forward of the padded batch, with its last hidden state joined to (B, T, H).

    Raises:
        TicketError: If it has something else for each token.
    """
    per_token = [name for name in PER_TOKEN if output.get(name) is not None]
    if per_token:
        raise TicketError(
            f"The forward of rows that are packed without padding returns {per_token} as well. Expected rows "
            "that are padded (packing=False, padding_free=False); of experts, output_router_logits=False."
        )
    output.last_hidden_state = placement.together(output.last_hidden_state)
    return output
