"""Decides per forward whether rows share their prefixes, and keeps account of it."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, Self

import torch
from torch import nn
from transformers.utils import logging

from ..rotary import unsteady
from .cached import Cut, find_cut
from .kernel import PackedAttention, Setting
from .layout import Layout, find_layout
from .micro_batches import MicroBatches
from .tree import TOLL
from .visibility import looks_ahead

logger = logging.get_logger(__name__)

# Below this share of tokens saved, packing costs about what it saves.
WORTHWHILE = 0.15

# Fewer prompt tokens than this, saved in `generate`, do not pay for the shared cache's own steps.
WORTHWHILE_PROMPT = 256

# Arguments of a backbone's forward that packing knows how to treat, whatever their value.
KNOWN = frozenset(
    {
        "attention_mask",
        "image_grid_thw",
        "input_ids",
        "logits_to_keep",
        "mm_encoder_outputs",
        "mm_token_type_ids",
        "moe_mm_token_type_ids",
        "position_ids",
        "return_dict",
        "token_type_ids",
    }
)

# Kinds of layers that are known; the self-check says whether a model's own are of these kinds.
LAYERS = frozenset(
    {"chunked_attention", "conv", "full_attention", "linear_attention", "mlp", "moe", "sliding_attention"}
)

# The two ways to share, as arguments of the decoder: a `Layout`, and a `Cut`.
IN_ONE_ROW = "shared_prefix"
ON_A_CACHE = "shared_cache"

Mode = Literal["auto"] | bool

# Why the forward that runs now, in this thread, must compute every row by itself.
_forbidden: ContextVar[str | None] = ContextVar("hf_vlm_rl_forbidden", default=None)


@contextmanager
def forbidden(reason: str | None) -> Iterator[None]:
    """Forwards of this thread do not share inside the block, for this reason; None forbids nothing."""
    token = _forbidden.set(reason or _forbidden.get())
    try:
        yield
    finally:
        _forbidden.reset(token)


class SharingSwitch:
    """One per policy backbone.

    Args:
        mode: "auto": share where it pays; True: wherever it is exact; False: never.
        refusal: Why this model's decoder cannot share exactly, or None.
        vision_arguments: Arguments of the backbone's forward that only change image features.
        steady_positions: The length of a batch from which on rotary frequencies depend on its longest row.
        companions: Arguments of the backbone's forward that come with images (grids, sizes).
        prefill_refusal: Why `generate` cannot prefill a prompt once, or None.
        way: The argument of the decoder by which it shares.
        recurrent: The decoder has recurrent or convolutional modules.
        attention: Which kernel computes packed rows; see `PackedAttention`.

    Attributes:
        tokens: B x T tokens of the forwards that shared.
        computed: Tokens that the decoder computed for them.
        levels: The most prefixes behind each other that a row of them shared.
        prompts: Prompts of the `generate` calls that prefilled distinct ones only.
        prefilled: Distinct prompts among them.
        prompt_tokens: Tokens of these calls' prompts, all but the last of each, padding included.
        prompt_tokens_prefilled: Tokens that the decoder computed for them.
        refused: Reason to number of forwards that did not share.
        micro_batches: The rows of the latest optimiser step.
        attention: Chooses that kernel, and keeps account of it.
        checked: Ways, dtypes, devices and kernels for which shared and plain forwards were seen to agree.
    """

    def __init__(
        self,
        mode: Mode = "auto",
        refusal: str | None = None,
        vision_arguments: Collection[str] = (),
        steady_positions: float = math.inf,
        companions: Collection[str] = (),
        prefill_refusal: str | None = None,
        way: str = IN_ONE_ROW,
        recurrent: bool = False,
        attention: Setting = "auto",
    ):
        if mode not in ("auto", True, False):
            raise ValueError(f"Got sharing={mode!r}. Expected 'auto', True or False.")
        self.mode = mode
        self.refusal = refusal
        self.vision_arguments = frozenset(vision_arguments)
        self.steady_positions = steady_positions
        self.companions = frozenset(companions)
        self.prefill_refusal = prefill_refusal
        self.way = way
        self.recurrent = recurrent
        self.tokens = 0
        self.computed = 0
        self.levels = 0
        self.prompts = 0
        self.prefilled = 0
        self.prompt_tokens = 0
        self.prompt_tokens_prefilled = 0
        self.refused: Counter[str] = Counter()
        self.micro_batches = MicroBatches()
        self.attention = PackedAttention(attention)
        self.checked: set[tuple] = set()

    def __deepcopy__(self, memo: dict) -> Self:
        return type(self)(
            self.mode,
            self.refusal,
            self.vision_arguments,
            self.steady_positions,
            self.companions,
            self.prefill_refusal,
            self.way,
            self.recurrent,
            self.attention.setting,
        )

    @property
    def way_in_words(self) -> Literal["packed", "mixed", "cached"] | None:
        """How rows share their prompts; None if they do not."""
        if self.mode is False or self.refusal is not None:
            return None
        if self.way == ON_A_CACHE:
            return "cached"
        return "mixed" if self.recurrent else "packed"

    def layout(
        self,
        input_ids: torch.Tensor,
        keys: Callable[[], dict[str, Any]],
        kwargs: Mapping[str, Any],
    ) -> Layout | Cut | None:
        """The layout for a forward, on the CPU, or None.

        Args:
            input_ids: (B, T).
            keys: Gives what `find_layout` takes besides the mask.
            kwargs: The arguments of the backbone's forward.
        """
        if self.mode is False:
            return None
        reason = self.refusal or _forbidden.get() or self._not_now(input_ids, kwargs)
        if reason is None:
            layout, reason = self._find(keys(), kwargs)
        if reason is not None:
            self.refused[reason] += 1
            return None
        return layout

    def layout_of_prompts(self, tokens: dict[str, Any], kwargs: Mapping[str, Any]) -> Layout | None:
        """The layout for prompts that fill a cache, on the CPU, or None.

        Args:
            tokens: What `find_layout` takes besides the mask.
            kwargs: The arguments of the backbone's forward.
        """
        found, _ = self._find(tokens, kwargs)
        return found if isinstance(found, Layout) else None

    def count(self, layout: Layout | Cut) -> None:
        """Keep account of a forward that shares."""
        self.tokens += layout.shape[0] * layout.shape[1]
        self.computed += layout.computed
        self.levels = max(self.levels, layout.levels)

    def refuse(self, reason: str, lasting: bool = True) -> None:
        """Do not share in this forward, for a reason that only the forward could show.

        Args:
            reason: In words.
            lasting: Share in another way from here on, or not at all where there is none.
        """
        self.refused[reason] += 1
        if lasting and self.way == IN_ONE_ROW:
            self.way = ON_A_CACHE
            logger.warning(f"Rows will share their prompts on a cache from here on: {reason}.")
        elif lasting:
            self.refusal = reason
            logger.warning(f"Rows will not share their prompts from here on: {reason}.")

    def tokens_by_rows(self) -> dict[int, int]:
        """Rows of a forward to the tokens that the decoder would compute in the latest optimiser step."""
        return self.micro_batches.tokens_by_rows(self._computed)

    def _computed(self, batch: dict[str, Any]) -> int:
        tokens = {name: value for name, value in batch.items() if name != "mask"}
        layout = self._find(tokens, {"attention_mask": batch["mask"]})[0] if len(batch["mask"]) > 1 else None
        return batch["mask"].numel() if layout is None else layout.computed

    def may_prefill(self, reason: str | None) -> bool:
        """Whether `generate` may prefill repeated prompts once; `reason` says why its settings forbid."""
        if self.mode is False:
            return False
        reason = self.refusal or self.prefill_refusal or reason
        if reason is not None:
            self.refused[reason] += 1
        return reason is None

    def prefill_pays(self, saved: int) -> bool:
        """Whether to share a cache that saves so many prompt tokens."""
        pays = saved >= WORTHWHILE_PROMPT if self.mode == "auto" else saved > 0
        if saved and not pays:
            self.refused[f"generate: fewer than {WORTHWHILE_PROMPT} prompt tokens could be saved"] += 1
        return pays

    def _not_now(self, input_ids: torch.Tensor, kwargs: Mapping[str, Any]) -> str | None:
        if len(input_ids) < 2:
            return "there is only one row"
        if kwargs.get("past_key_values") is not None or kwargs.get("use_cache") is not False:
            return "the caller wants a key-value cache (use_cache is not False)"
        known = KNOWN | self.vision_arguments | self.companions
        if unknown := [name for name in kwargs if name not in known and _says_something(kwargs[name])]:
            return f"the caller passes {unknown[0]}"
        mask = kwargs.get("attention_mask")
        if mask is not None and (not isinstance(mask, torch.Tensor) or mask.ndim != 2):
            return "the attention mask is not (B, T)"
        if mask is None and kwargs.get("position_ids") is not None:
            # transformers then takes a row whose positions restart for several documents.
            return "the caller passes position_ids without an attention mask"
        return None

    def _find(
        self, tokens: dict[str, Any], kwargs: Mapping[str, Any]
    ) -> tuple[Layout | Cut | None, str | None]:
        mask = kwargs.get("attention_mask")
        mask = torch.ones_like(tokens["joined"]) if mask is None else mask.cpu().bool()
        # A cache is filled once: prefixes behind others would only make the first ones shorter.
        toll = math.inf if self.way == ON_A_CACHE else TOLL
        layout = find_layout(mask=mask, toll=toll, **tokens)
        if layout is None:
            return None, "a row has padding in its middle or no token at all"
        layout = replace(layout, attention=self.attention)
        found: Layout | Cut = layout
        if self.way == ON_A_CACHE:
            found = find_cut(layout, tokens["keys"], mask, tokens["joined"])
        if self.mode == "auto" and found.saved < WORTHWHILE:
            return None, f"less than {WORTHWHILE:.0%} of the tokens could be saved"
        positions = kwargs.get("position_ids")
        # On a cache, prefixes run before what follows, and reach less far.
        if self.way == ON_A_CACHE or not mask.all():
            reason = unsteady(_reach(tokens, positions), self.steady_positions)
            if reason is not None:
                return None, reason
        if positions is not None and not found.fits(positions.cpu(), mask):
            return None, "rows with one prompt have different position_ids for it"
        return found, None


def _says_something(value: Any) -> bool:
    """Whether an argument asks for more than its default: None and False do not."""
    return value is not None and value is not False


def _reach(tokens: Mapping[str, Any], positions: torch.Tensor | None) -> float:
    """The positions that a batch reaches; infinity where its backbone counts them later.

    Args:
        tokens: What `find_layout` takes besides the mask.
        positions: (..., B, T) explicit ones.
    """
    if positions is not None:
        return int(positions.max()) + 1
    # Otherwise they are columns.
    return tokens["keys"].shape[1] if tokens["aligned"] else math.inf


def refusal(config: Any, token_types: Collection[str]) -> str | None:
    """Why a decoder cannot share exactly; None if it can, or if only the self-check can tell.

    Args:
        config: The text config.
        token_types: `VLMFamily.token_types`.
    """
    if unknown := sorted(set(token_types) - KNOWN):
        return f"the decoder takes {unknown[0]} for each token"
    # What a text config leaves out, its decoder does not have.
    if getattr(config, "attention_dropout", 0.0):
        return "the decoder drops attention at random"
    return None


def knows_layers(config: Any) -> bool:
    """Whether all kinds of layers that a decoder's config names run on a packed row."""
    # Configs that name none have layers of one kind, as the self-check finds out.
    return set(getattr(config, "layer_types", None) or ()) <= LAYERS


def refusal_to_prefill(decoder: nn.Module, prefix_attention: bool) -> str | None:
    """Why a prompt's last token cannot be left for the first step of `generate`; None if it can.

    Args:
        decoder: The text decoder.
        prefix_attention: `VLMFamily.prefix_attention`.
    """
    if prefix_attention or any(map(looks_ahead, decoder.modules())):
        return "generate: prompt tokens attend in both directions"
    return None
