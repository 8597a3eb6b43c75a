"""The gate of training forwards: may the rows of this batch share what they begin with, and how?

Nothing behind this gate asks again. If a stock forward then does something that packed rows cannot do, the
module that notices raises `Refused`, and the backbone lets stock compute the batch.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from ...compat import CACHE
from ..arguments import BACKBONE, require_known
from ..foreign_hooks import foreign_forward, foreign_hook
from ..images.row_images import RowImages, Rows
from ..ranks import is_sharded
from ..report import Refused
from ..rotary import require_steady
from .agreement import ROWS
from .layout import Layout, find_layout
from .settings import forbidden_here

# Below this share of tokens saved, packing costs about what it saves.
WORTHWHILE = 0.15

# Kinds of layers that run on a packed row. Configs that name none have layers of one kind, and the
# comparison with stock says whether it is one of these.
LAYERS = frozenset(
    {"chunked_attention", "conv", "full_attention", "linear_attention", "mlp", "moe", "sliding_attention"}
)

# The bits of a ticket that tell images apart; in negative numbers, they fit into int64 beside ids.
IMAGE = (1 << 62) - 1


def plan(backbone: Any, kwargs: Mapping[str, Any], rows: Rows) -> Layout | None:
    """How the rows share, on the ids' device; None if each is computed by itself; the report says why."""
    if backbone.sharing.mode is False:
        return None
    try:
        settings = backbone.sharing
        if (reason := settings.refusal or settings.unpacked or forbidden_here()) is not None:
            raise Refused(reason)
        _require_plain_batch(backbone, kwargs)
        layout = layout_of(backbone, kwargs, rows)
    except Refused as refused:
        backbone.refuse_to_share(refused)
        return None
    return layout.to(kwargs["input_ids"].device)


def _require_plain_batch(backbone: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse batches whose arguments say more than which tokens there are, and where they stand."""
    if len(kwargs["input_ids"]) < 2:
        raise Refused("there is only one row")
    if kwargs.get(CACHE) is not None or kwargs.get("use_cache") is not False:
        raise Refused("the caller wants a key-value cache (use_cache is not False)")
    known = BACKBONE | backbone.sharing.vision_arguments | backbone.sharing.companions | {"use_cache"}
    require_known(kwargs, known, "the caller passes")
    mask = kwargs.get("attention_mask")
    if mask is not None and (not isinstance(mask, torch.Tensor) or mask.ndim != 2):
        raise Refused("the attention mask is not (B, T)")
    if mask is None and kwargs.get("position_ids") is not None:
        # transformers then reads a row whose positions restart as several documents.
        raise Refused("the caller passes position_ids without an attention mask")


def layout_of(backbone: Any, kwargs: Mapping[str, Any], rows: Rows) -> Layout:
    """The layout of a batch, on the CPU.

    Raises:
        Refused: If common prefixes are too short, or the decoder cannot compute them once exactly.
    """
    settings, ids, mask = backbone.sharing, rows.copy.ids, rows.copy.mask
    mask = torch.ones(ids.shape, dtype=torch.bool) if mask is None else mask.cpu().bool()
    keys, positions = keys_of_rows(backbone, ids, rows.images), kwargs.get("position_ids")
    positions = None if positions is None else positions.cpu()
    # Without `position_ids`, decoders number the columns, and some use these for more than distances.
    images = bool(rows.tickets)
    columns = positions is None and not (backbone.family.grids and images)
    layout = find_layout(keys, mask, _joined(backbone, keys, {**kwargs, **rows.types}), aligned=columns)
    if layout is None:
        raise Refused("a row has padding in its middle or no token at all")
    if settings.mode == "auto" and layout.saved < WORTHWHILE:
        raise Refused(f"less than {WORTHWHILE:.0%} of the tokens could be saved")
    if not mask.all():
        counted = ids.shape[1] if columns else math.inf  # some backbones count positions later
        reach = counted if positions is None else int(positions.max()) + 1
        require_steady(reach, settings.steady_positions)
    if positions is not None and not layout.fits(positions, mask):
        raise Refused("rows with one prompt have different position_ids for it")
    # To look at every module's hooks takes as long as to find the layout, so it comes after cheaper checks.
    require_unwatched(backbone)
    if settings.recurrent and is_sharded(backbone):
        raise Refused("weights are spread over ranks, and shared rows run some modules twice")
    backbone.verdicts.ask(ROWS, backbone.decoder)
    return layout


def require_unwatched(backbone: Any) -> None:
    """Refuse a decoder that hooks watch, or whose config asks for layers' outputs.

    The gate refuses the same wish as an argument (`output_attentions=True`): the table does not allow it.
    """
    decoder = backbone.decoder
    for name in ("attentions", "hidden_states", *decoder.can_record_outputs):
        if getattr(decoder.config, f"output_{name}", False):  # configs lack what their model cannot record
            raise Refused(f"the model's config has output_{name}")
    if (home := foreign_hook(decoder)) is not None:
        raise Refused(f"a hook of {home} is on the decoder")
    if (home := foreign_forward(decoder)) is not None:
        raise Refused(f"a forward of {home} stands in the place of the decoder's")


def keys_of_rows(backbone: Any, ids: torch.Tensor, rows: Sequence[RowImages]) -> torch.Tensor:
    """A copy of the clean ids (B, T), on the CPU, with a negative number of its image at each image token."""
    keys = ids.to(torch.int64, copy=True)
    places = backbone.processing_class.state.marks(keys)
    for row, images in enumerate(rows):
        numbers = [
            -1 - (ticket & IMAGE)
            for ticket, length in zip(images.tickets, images.lengths, strict=True)
            for _ in range(length)
        ]
        if numbers:
            keys[row, places[row]] = torch.tensor(numbers)
    return keys


def refusal_of(config: Any, token_types: Collection[str]) -> str | None:
    """Why a decoder's prompt may not be the same in each row that begins with it; None if it is."""
    if unknown := sorted(set(token_types) - BACKBONE):
        return f"the decoder takes {unknown[0]} for each token"
    # A config without `attention_dropout` belongs to a decoder that has none.
    return "the decoder drops attention at random" if getattr(config, "attention_dropout", 0.0) else None


def unpacked_by(config: Any) -> str | None:
    """Why a decoder may run no packed rows; the comparison with stock finds what this misses."""
    unknown = sorted(set(getattr(config, "layer_types", None) or ()) - LAYERS)
    return f"its {unknown[0]} layers are not known to run on packed rows" if unknown else None


def _joined(backbone: Any, keys: torch.Tensor, types_of_names: Mapping[str, Any]) -> torch.Tensor:
    """(B, T) bool on the CPU: tokens before which no prefix may end.

    In some models, image tokens see each other in both directions, as do those that begin and end an image,
    or all tokens of a prompt that has token types.
    """
    together = keys < 0
    for name in backbone.family.token_types:
        types = types_of_names.get(name)
        if types is not None:
            together |= ((types == 0) if backbone.family.prefix_attention else (types != 0)).cpu()
    joined = torch.zeros_like(together)
    joined[:, 1:] = together[:, 1:] & together[:, :-1]
    return joined
