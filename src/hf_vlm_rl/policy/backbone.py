"""The multimodal backbone that understands tickets."""

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedModel

from .._retype import Retyped, overriding, retype
from ..families import VLMFamily
from ..families.derive_inputs import POSITIONS
from ..processing.tokenizer import VLMTokenizer
from .blind import ImageWatch
from .fused_head import hand_over
from .images.feature_cache import FeatureCache
from .images.features import vision_arguments
from .images.image_features import fields_read
from .images.image_tokens import check_labels
from .images.inputs import IDLE, resolve
from .images.locate import tickets_inside
from .images.native_inputs import NOT_SHARED
from .known_arguments import check_arguments, known_arguments
from .probe import Verdicts
from .report import Refused, Report
from .rotary import steady_positions
from .sharing.decoder import VLMDecoder
from .sharing.hooks import attach
from .sharing.layout import LAYOUT, Layout
from .sharing.settings import Mode, SharingSettings
from .sharing.share import plan, refusal_of, unpacked_by
from .transfer import on_host
from .trie import trie_of
from .unpadded_rows import joined_rows, lay_apart, lay_together


class _Carried:
    """Holds the processing class on a module: deep copies of the module share it."""

    def __init__(self, processing_class: VLMTokenizer):
        self.processing_class = processing_class

    def __deepcopy__(self, memo: dict) -> "_Carried":
        return self


class _OfThread:
    """A value that each thread sets for itself; a thread that has set none gets what any thread set last."""

    def __init__(self, latest: Any):
        self.latest = latest
        self._own = threading.local()

    def get(self) -> Any:
        return getattr(self._own, "value", self.latest)

    def set(self, value: Any) -> None:
        self._own.value = self.latest = value

    def __reduce__(self) -> tuple:  # copies begin with the latest
        return type(self), (self.latest,)


if TYPE_CHECKING:  # what the backbone uses of the class that it is mixed into
    _StockModel = PreTrainedModel
else:
    _StockModel = object


class VLMBackbone(Retyped, _StockModel):
    """Mixed into the multimodal backbone: resolves tickets at the top of its forward.

    Trainers call the backbone directly (TRL >= 1.15 for log-probs, PPO for values), so images are
    resolved here and not in the causal-LM forward.
    """

    _vlm: _Carried
    feature_cache: FeatureCache  # features of images, kept while the tower that made them does not change
    fields_read: frozenset[str]  # fields that the stock forward reads from ready image features
    report: Report  # what was computed once, and every reason why not
    sharing: SharingSettings  # whether rows of this backbone may share the prefixes that they begin with
    verdicts: Verdicts  # of comparing the fast paths of this backbone's decoder with stock
    _watch: ImageWatch
    _decoder: str
    _known: frozenset[str]
    _rope_deltas: _OfThread

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        @overriding(stock.forward)
        def forward(self: Any, kwargs: dict[str, Any]) -> Any:
            check_arguments(self, self._known, kwargs)
            self._watch.see(self, kwargs)
            placement = trie_of(kwargs)
            if placement is None and tickets_inside(self, kwargs):
                check_labels(self, kwargs["input_ids"])
                placement = joined_rows(kwargs)
            if placement is not None:
                vision = vision_arguments(self)
                kwargs = lay_apart(placement, kwargs, self.processing_class.pad_token_id, vision)
            kwargs, rows = resolve(self, kwargs)
            idle = kwargs.pop(IDLE, None)
            layout = None if rows is None else plan(self, kwargs, rows)
            output = None if layout is None else self._shared(stock, layout, kwargs)
            if output is None:
                output = stock.forward(self, **kwargs)
            if idle is not None:
                # A few backbones return logits instead of hidden states.
                name = "last_hidden_state" if "last_hidden_state" in output else "logits"
                output[name] = output[name] + idle
            return hand_over(output if placement is None else lay_together(placement, output))

        if not hasattr(stock, POSITIONS):
            return {"forward": forward}

        @overriding(getattr(stock, POSITIONS))
        def positions(self: Any, kwargs: dict[str, Any]) -> Any:
            return on_host(functools.partial(getattr(stock, POSITIONS), self), kwargs)

        return {"forward": forward, POSITIONS: positions}

    def _shared(self, stock: Any, layout: Layout, kwargs: dict[str, Any]) -> Any:
        """The stock forward's output on packed rows; None if one of its modules refuses these."""
        try:
            output = stock.forward(self, **kwargs, **{LAYOUT: layout})
        except Refused as refused:
            self.refuse_to_share(refused)
            return None
        rows, columns = layout.shape
        self.report.count(tokens=rows * columns, tokens_computed=layout.computed)
        self.report.reach("levels", layout.levels)
        return output

    def refuse_to_share(self, refused: Refused) -> None:
        """Note why stock computes a forward; after a lasting reason, stock computes all further forwards."""
        self.report.refuse("not_shared", refused)
        if refused.lasting:
            self.sharing.unpacked = str(refused)

    def carry(
        self,
        processing_class: VLMTokenizer,
        sharing: SharingSettings,
        decoder: str,
        read: frozenset[str],
        known: frozenset[str],
    ) -> None:
        """Take what this backbone needs beyond the stock one; `make_backbone` calls it once."""
        self._vlm = _Carried(processing_class)
        self._decoder = decoder
        self.fields_read = read
        self._known = known
        self.feature_cache, self.report, self._watch = FeatureCache(), Report(), ImageWatch()
        self.sharing, self.verdicts = sharing, Verdicts()
        # Only models that count positions in three dimensions have it.
        if "rope_deltas" in vars(self):
            self._rope_deltas = _OfThread(vars(self).pop("rope_deltas"))

    def renew(self) -> None:
        """Forget what forwards so far left behind: features, positions and counts."""
        self.feature_cache = FeatureCache(self.feature_cache.limit_bytes)
        self.report, self._watch = Report(), ImageWatch()
        if "_rope_deltas" in vars(self):
            self._rope_deltas = _OfThread(None)

    @property
    def rope_deltas(self) -> torch.Tensor | None:
        """(B, 1), of this thread's latest prompts: the next position minus the number of tokens.

        Stock models count on from it when they continue a cache, which belongs to a thread's own prompts.
        """
        return self._rope_deltas.get()

    @rope_deltas.setter
    def rope_deltas(self, deltas: torch.Tensor | None) -> None:
        self._rope_deltas.set(deltas)

    @property
    def processing_class(self) -> VLMTokenizer:
        """The processing class that emitted the tickets this backbone resolves."""
        return self._vlm.processing_class

    @property
    def decoder(self) -> nn.Module:
        """The text decoder; the backbone itself where it has no other."""
        return self.get_submodule(self._decoder)

    @property
    def decoder_name(self) -> str:
        """Name of the child that is the decoder or holds it; "" where the backbone itself is the decoder."""
        return self._decoder.partition(".")[0]

    @property
    def family(self) -> VLMFamily:
        """The row that describes this kind of model."""
        return self.processing_class.state.family


def make_backbone(model: Any, processing_class: VLMTokenizer, sharing: Mode = "auto") -> Any:
    """Re-type the backbone and decoder of `model`, whatever its head; arguments as `make_policy`."""
    family, backbone = processing_class.state.family, model.base_model
    decoder = model.get_submodule(family.language)
    settings = SharingSettings(
        mode=sharing,
        vision_arguments=frozenset() if family.native_inputs else vision_arguments(backbone),
        companions=frozenset((*family.companions, *family.video_companions)),
        steady_positions=steady_positions(decoder.config),
    )
    if family.native_inputs:
        settings.refusal = NOT_SHARED
    elif decoder is backbone:
        settings.refusal = "the decoder is no module of its own"
    else:
        retype(decoder, VLMDecoder)
        settings.recurrent = attach(decoder) > 0
        settings.refusal = refusal_of(decoder.config, family.token_types)
        settings.unpacked = unpacked_by(decoder.config)
    read = fields_read(type(backbone))
    known = known_arguments(model, backbone, decoder, family.video_features)
    path = next(name for name, module in backbone.named_modules() if module is decoder)
    retype(backbone, VLMBackbone).carry(processing_class, settings, path, read, known)
    return model
