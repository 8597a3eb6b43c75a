"""Decides per forward whether rows share their prefixes, and keeps account of it."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import torch

from .layout import Layout, find_layout

# Below this share of tokens saved, packing costs about what it saves.
WORTHWHILE = 0.15

# Fewer prompt tokens than this, saved in `generate`, do not pay for the shared cache's own steps.
WORTHWHILE_PROMPT = 256

Mode = Literal["auto"] | bool


class SharingSwitch:
    """One per policy backbone.

    Args:
        mode: "auto": share where it pays; True: wherever it is exact; False: never.
        refusal: Why this model's decoder cannot share exactly, or None.

    Attributes:
        tokens: B x T tokens of the forwards that shared.
        computed: Tokens that the decoder computed for them.
        prompts: Prompts of the `generate` calls that prefilled distinct ones only.
        prefilled: Distinct prompts among them.
        refused: Reason to number of forwards that did not share.
        checked: Dtypes, devices and kernels for which both paths were seen to agree.
    """

    def __init__(self, mode: Mode = "auto", refusal: str | None = None):
        if mode not in ("auto", True, False):
            raise ValueError(f"Got sharing={mode!r}. Expected 'auto', True or False.")
        self.mode = mode
        self.refusal = refusal
        self.tokens = 0
        self.computed = 0
        self.prompts = 0
        self.prefilled = 0
        self.refused: Counter[str] = Counter()
        self.checked: set[tuple] = set()

    def __deepcopy__(self, memo: dict) -> Self:
        return type(self)(self.mode, self.refusal)

    def layout(
        self, input_ids: torch.Tensor, keys: Callable[[], torch.Tensor], kwargs: Mapping
    ) -> Layout | None:
        """The layout for a forward, on the CPU, or None.

        Args:
            input_ids: (B, T).
            keys: Gives (B, T) on the CPU; equal numbers mean equal token and image.
            kwargs: The arguments of the backbone's forward.
        """
        if self.mode is False:
            return None
        reason = self.refusal or _not_now(input_ids, kwargs)
        if reason is None:
            layout, reason = self._find(keys(), kwargs.get("attention_mask"))
        if reason is not None:
            self.refused[reason] += 1
            return None
        return layout

    def count(self, layout: Layout) -> None:
        """Keep account of a forward that shares."""
        self.tokens += layout.shape[0] * layout.shape[1]
        self.computed += len(layout.source)

    def may_prefill(self, reason: str | None) -> bool:
        """Whether `generate` may prefill repeated prompts once; `reason` says why its settings forbid."""
        if self.mode is False:
            return False
        reason = self.refusal or reason
        if reason is not None:
            self.refused[reason] += 1
        return reason is None

    def prefill_pays(self, saved: int) -> bool:
        """Whether to share a cache that saves so many prompt tokens."""
        pays = saved >= WORTHWHILE_PROMPT if self.mode == "auto" else saved > 0
        if saved and not pays:
            self.refused[f"generate: fewer than {WORTHWHILE_PROMPT} prompt tokens could be saved"] += 1
        return pays

    def _find(self, keys: torch.Tensor, mask: torch.Tensor | None) -> tuple[Layout | None, str | None]:
        mask = torch.ones_like(keys, dtype=torch.bool) if mask is None else mask.cpu().bool()
        layout = find_layout(keys, mask)
        if layout is None:
            return None, "a row has padding in its middle or no token at all"
        if self.mode == "auto" and layout.saved < WORTHWHILE:
            return None, f"less than {WORTHWHILE:.0%} of the tokens could be saved"
        return layout, None


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


def refusal(config: Any, token_types: str | None, attached: int) -> str | None:
    """Why a decoder cannot share exactly; None if it can.

    Args:
        config: The text config.
        token_types: `VLMFamily.token_types`.
        attached: Number of attention modules that can switch to packed attention.
    """
    if attached != config.num_hidden_layers:
        return f"{attached} attention modules were recognised in {config.num_hidden_layers} layers"
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
