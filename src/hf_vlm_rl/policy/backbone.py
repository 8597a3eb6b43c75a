"""The multimodal backbone that understands tickets."""

import copy
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PreTrainedModel

from .._retype import Retyped, overriding, retype
from ..families import VLMFamily
from ..processing.tokenizer import VLMTokenizer
from .blind import ImageWatch
from .feature_cache import FeatureCache
from .features import vision_arguments
from .image_features import fields_read
from .image_tokens import check_labels
from .inputs import IDLE, resolve
from .locate import tickets_inside
from .native_inputs import NOT_SHARED
from .packed_rows import lay_apart, lay_together, packed
from .rollouts.account import RolloutAccount
from .rotary import steady_positions
from .sharing.decoder import VLMDecoder
from .sharing.hooks import attach
from .sharing.share import share_prefixes
from .sharing.switch import (
    IN_ONE_ROW,
    ON_A_CACHE,
    Mode,
    SharingSwitch,
    knows_layers,
    refusal,
    refusal_to_prefill,
)
from .sharing.visibility import UnknownInput


class _Carried:
    """Holds the processing class on a module: deep copies of the module share it."""

    def __init__(self, processing_class: VLMTokenizer):
        self.processing_class = processing_class

    def __deepcopy__(self, memo: dict) -> "_Carried":
        return self


if TYPE_CHECKING:  # what it finds in the class that it is mixed into
    _StockModel = PreTrainedModel
else:
    _StockModel = object


class VLMBackbone(Retyped, _StockModel):
    """Mixed into the multimodal backbone: resolves tickets at the top of its forward.

    Trainers call the backbone directly (TRL >= 1.15 for log-probs, PPO for values), so images are
    resolved here and not in the causal-LM forward.
    """

    _vlm: _Carried
    _features: FeatureCache
    _sharing: SharingSwitch
    _rollouts: RolloutAccount
    _watch: ImageWatch
    _decoder: str
    _read: frozenset[str]

    @classmethod
    def _members(cls, stock: Any) -> dict[str, Any]:
        @overriding(stock.forward)
        def forward(self: Any, kwargs: dict[str, Any]) -> Any:
            self._watch.see(self, kwargs)
            laid = None
            if tickets_inside(self, kwargs):
                check_labels(self, kwargs["input_ids"])
                laid = packed(kwargs)
            if laid is not None:
                kwargs = lay_apart(laid, kwargs, self.processing_class.pad_token_id)
            kwargs, rows = resolve(self, kwargs)
            idle = kwargs.pop(IDLE, None)
            shared = share_prefixes(self, kwargs, rows) if rows is not None else {}
            try:
                output = stock.forward(self, **kwargs, **shared)
                for layout in shared.values():
                    self._sharing.count(layout)
            except UnknownInput as error:
                self._sharing.refuse(str(error), error.lasting)
                output = stock.forward(self, **kwargs)
            if idle is not None:
                output.last_hidden_state = output.last_hidden_state + idle
            return output if laid is None else lay_together(laid, output)

        return {"forward": forward}

    def carry(
        self,
        processing_class: VLMTokenizer,
        sharing: SharingSwitch,
        rollouts: RolloutAccount,
        decoder: str,
        read: frozenset[str],
    ) -> None:
        """Take what this backbone needs beyond the stock one; `make_backbone` calls it once."""
        self._vlm = _Carried(processing_class)
        self._decoder = decoder
        self._read = read
        self._features = FeatureCache()
        self._sharing = sharing
        self._rollouts = rollouts
        self._watch = ImageWatch()

    def renew(self) -> None:
        """Forget what forwards so far left behind: features, completions and counts."""
        limit = self._features.limit_bytes
        self._features, self._watch = FeatureCache(limit), ImageWatch()
        self._sharing = copy.deepcopy(self._sharing)
        self._rollouts = copy.deepcopy(self._rollouts)

    @property
    def processing_class(self) -> VLMTokenizer:
        """The processing class that emitted the tickets this backbone resolves."""
        return self._vlm.processing_class

    @property
    def fields_read(self) -> frozenset[str]:
        """Names of the fields of ready image features that the stock forward reads."""
        return self._read

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

    @property
    def feature_cache(self) -> FeatureCache:
        """Features of images, kept while nothing that made them changes."""
        return self._features

    @property
    def sharing(self) -> SharingSwitch:
        """Decides which forwards share their prompts, and keeps account."""
        return self._sharing

    @property
    def rollouts(self) -> RolloutAccount:
        """What `generate` saved, and whether it may do so by drafts."""
        return self._rollouts


def make_backbone(
    model: Any, processing_class: VLMTokenizer, sharing: Mode = "auto", speculation: bool | int = False
) -> Any:
    """Re-type the backbone and decoder of `model`, which has any head; arguments as `make_policy`."""
    family, backbone = processing_class.state.family, model.base_model
    decoder, recurrent = model.get_submodule(family.language), False
    if family.native_inputs:
        reason: str | None = NOT_SHARED
    elif decoder is backbone:
        reason = "the decoder is no module of its own"
    else:
        retype(decoder, VLMDecoder)
        recurrent = attach(decoder) > 0
        reason = refusal(decoder.config, family.token_types)
    arguments = frozenset() if family.native_inputs else vision_arguments(backbone)
    switch = SharingSwitch(
        sharing,
        reason,
        arguments,
        steady_positions(decoder.config),
        (*family.companions, *family.video_companions),
        refusal_to_prefill(decoder, family.prefix_attention),
        IN_ONE_ROW if knows_layers(decoder.config) else ON_A_CACHE,
        recurrent,
    )
    read = fields_read(type(backbone))
    path = next(name for name, module in backbone.named_modules() if module is decoder)
    retype(backbone, VLMBackbone).carry(processing_class, switch, RolloutAccount(speculation), path, read)
    return model
