"""Several rows in one, without padding: laid apart for the forward, and its output laid together.

Trainers number the tokens of each row from 0 and pass no mask. Images need more than these numbers (positions
in three dimensions), and a row must not see its neighbour whatever attention the model has, so that the rows
become rows of a batch.

Shapes: B given rows of T tokens hold S rows of at most L tokens; H hidden size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import TicketError

# What trainers say of packed rows for the sake of kernels.
LENGTHS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx")
# What the outputs of a forward may have for each token, beside its last hidden state.
UNPACKABLE = ("hidden_states", "attentions", "router_logits")
PASSED = ("use_cache", "return_dict", "logits_to_keep", "output_hidden_states", "output_attentions")


@dataclass(frozen=True)
class Packed:
    """Where the tokens of packed rows go.

    Attributes:
        rows: (B * T,) the row of each token.
        places: (B * T,) its place there.
        shape: (S, L).
        given: (B, T).
    """

    rows: torch.Tensor
    places: torch.Tensor
    shape: tuple[int, int]
    given: torch.Size

    def apart(self, tokens: torch.Tensor, filler: int) -> torch.Tensor:
        """(B, T) to (S, L), `filler` behind each row."""
        laid = tokens.new_full(self.shape, filler)
        laid[self.rows, self.places] = tokens.flatten()
        return laid

    def together(self, states: torch.Tensor) -> torch.Tensor:
        """(S, L, H) to (B, T, H)."""
        return states[self.rows, self.places].unflatten(0, self.given)


def packed(kwargs: Mapping[str, Any]) -> Packed | None:
    """How the rows of a forward are packed; None if they are not.

    Args:
        kwargs: The arguments of the forward. Its rows are packed if it has no mask, no cache, and
            `position_ids` (B, T) that count from 0, again and again.
    """
    positions, input_ids = kwargs.get("position_ids"), kwargs.get("input_ids")
    others = (kwargs.get("attention_mask"), kwargs.get("past_key_values"))
    if input_ids is None or positions is None or any(other is not None for other in others):
        return None
    if positions.shape != input_ids.shape or bool((positions[:, 0] != 0).any()):
        return None
    starts = positions == 0
    if not bool((starts[:, 1:] | (positions[:, 1:] == positions[:, :-1] + 1)).all()):
        return None
    rows, places = starts.flatten().long().cumsum(dim=0) - 1, positions.flatten()
    shape = (int(rows[-1]) + 1, int(places.max()) + 1)
    return Packed(rows, places, shape, input_ids.shape)


def lay_apart(layout: Packed, kwargs: Mapping[str, Any], pad_token_id: int) -> dict[str, Any]:
    """The arguments of a forward, a packed row in a row of its own.

    Args:
        layout: From `packed`.
        kwargs: The arguments.
        pad_token_id: Fills rows.

    Raises:
        TicketError: If an argument is not known to be of all rows.
    """
    own = {"input_ids", "position_ids", *LENGTHS}
    left = {name: value for name, value in kwargs.items() if name not in own and value is not None}
    unknown = sorted(name for name in left if isinstance(left[name], torch.Tensor))
    asked = sorted(name for name in ("output_hidden_states", "output_attentions") if left.get(name))
    if unknown or asked:
        raise TicketError(
            f"Got {unknown + asked} for rows that are packed without padding and have images. Expected none "
            "of these; or rows that are padded (packing=False, padding_free=False)."
        )
    ids = layout.apart(kwargs["input_ids"], pad_token_id)
    mask = layout.apart(torch.ones_like(kwargs["input_ids"]), 0)
    return left | {"input_ids": ids, "attention_mask": mask, "use_cache": False}


def lay_together(layout: Packed, output: Any) -> Any:
    """The output of a forward whose rows were laid apart, as of the rows that were given.

    Raises:
        TicketError: If it has more of each token than its last hidden state.
    """
    found = [name for name in UNPACKABLE if output.get(name) is not None]
    if found:
        raise TicketError(
            f"The forward of rows that are packed without padding returns {found} as well. Expected rows "
            "that are padded (packing=False, padding_free=False); of experts, output_router_logits=False."
        )
    output.last_hidden_state = layout.together(output.last_hidden_state)
    return output
