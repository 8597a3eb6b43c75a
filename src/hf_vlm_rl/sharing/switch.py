"""Decides per forward whether rows share their prefixes, and keeps account of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import torch

from .layout import Layout, find_layout

# Below this share of tokens saved, packing costs about what it saves.
WORTHWHILE = 0.15

Mode = Literal["auto"] | bool


class SharingSwitch:
    """One per policy backbone.

    Args:
        mode: "auto": share where it pays; True: wherever it is exact; False: never.
        refusal: Why this model's decoder cannot share exactly, or None.

    Attributes:
        tokens: B x T tokens of the forwards that shared.
        computed: Tokens that the decoder computed for them.
        refused: Reason to number of forwards that did not share.
    """

    def __init__(self, mode: Mode = "auto", refusal: str | None = None):
        if mode not in ("auto", True, False):
            raise ValueError(f"Got sharing={mode!r}. Expected 'auto', True or False.")
        self.mode = mode
        self.refusal = refusal
        self.tokens = 0
        self.computed = 0
        self.refused: Counter[str] = Counter()

    def __deepcopy__(self, memo: dict) -> Self:
        return type(self)(self.mode, self.refusal)

    def layout(
        self, input_ids: torch.Tensor, tickets: Sequence[Sequence[int]], placeholder: int, kwargs: Mapping
    ) -> Layout | None:
        """The layout for a forward, or None.

        Args:
            input_ids: (B, T), with clean placeholders.
            tickets: The tickets of each row, one per image token run, see `image_keys`.
            placeholder: The id of an image token.
            kwargs: The arguments of the backbone's forward.
        """
        if self.mode is False:
            return None
        reason = self.refusal or _not_now(input_ids, kwargs)
        if reason is None:
            layout, reason = self._find(input_ids, tickets, placeholder, kwargs)
        if reason is not None:
            self.refused[reason] += 1
            return None
        self.tokens += layout.shape[0] * layout.shape[1]
        self.computed += len(layout.source)
        return layout.to(input_ids.device)

    def _find(
        self, input_ids: torch.Tensor, tickets: Sequence, placeholder: int, kwargs: Mapping
    ) -> tuple[Layout | None, str | None]:
        ids = input_ids.cpu()
        mask = kwargs.get("attention_mask")
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.cpu().bool()
        layout = find_layout(image_keys(ids, tickets, placeholder), mask)
        if layout is None:
            return None, "a row has padding in its middle or no token at all"
        if self.mode == "auto" and layout.saved < WORTHWHILE:
            return None, f"less than {WORTHWHILE:.0%} of the tokens could be saved"
        return layout, None


def image_keys(ids: torch.Tensor, tickets: Sequence[Sequence[int]], placeholder: int) -> torch.Tensor:
    """Ids in which image tokens are told apart by their image.

    Args:
        ids: (B, T) on the CPU.
        tickets: For each row, the ticket of each of its image tokens, in order.
        placeholder: The id of an image token.

    Returns:
        (B, T): the ids, with a negative number per distinct image at image tokens.
    """
    keys = ids.clone()
    numbers: dict[int, int] = {}
    for row, own in enumerate(tickets):
        if own:
            values = [-1 - numbers.setdefault(ticket, len(numbers)) for ticket in own]
            keys[row, ids[row] == placeholder] = torch.tensor(values)
    return keys


def _not_now(input_ids: torch.Tensor, kwargs: Mapping[str, Any]) -> str | None:
    if len(input_ids) < 2:
        return "there is only one row"
    if kwargs.get("past_key_values") is not None or kwargs.get("use_cache") is not False:
        return "the caller wants a key-value cache (use_cache is not False)"
    wanted = ("output_attentions", "output_hidden_states", "output_router_logits")
    if asked := [name for name in wanted if kwargs.get(name)]:
        return f"the caller wants {asked[0]}"
    mask = kwargs.get("attention_mask")
    if mask is not None and (not isinstance(mask, torch.Tensor) or mask.ndim != 2):
        return "the attention mask is not (B, T)"
    return None


def refusal(config: Any, token_types: str | None) -> str | None:
    """Why a decoder cannot share exactly; None if it can.

    Args:
        config: The text config.
        token_types: `VLMFamily.token_types`.
    """
    if token_types == "token_type_ids":
        return "image or prompt tokens attend in both directions"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        return f"the decoder has layers of type {', '.join(sorted(kinds - {'full_attention'}))}"
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return "the decoder attends within a sliding window"
    if getattr(config, "attention_dropout", 0.0):
        return "the decoder drops attention at random"
    return None
