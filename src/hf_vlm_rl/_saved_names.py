"""Weights that a trainer loads into a model that exists, under the names of a checkpoint's files."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from transformers.core_model_loading import revert_weight_conversion

from .errors import CheckpointError

if TYPE_CHECKING:
    from transformers import PreTrainedModel as _StockModel
else:
    _StockModel = object


class SavedNames(_StockModel):
    """Mixed into models that trainers resume.

    `save_pretrained` writes the weights of most families under the names of older releases. To go on from a
    checkpoint of all weights, and to load the best one, trainers of transformers (5.20 to 5.24) call
    `load_state_dict(weights, strict=False)` with these names: nothing of what does not fit is loaded, and a
    warning is all that says so. Goes when they translate the names.
    """

    def load_state_dict(self, state_dict: Mapping, strict: bool = True, assign: bool = False) -> Any:
        """As stock; with `strict=False`, names that `save_pretrained` writes are the model's own, too.

        Raises:
            CheckpointError: If such a weight is made of several of the model's or is a part of one, and has
                other values than these.
        """
        if not strict:
            state_dict = self._by_own_names(state_dict)
        return super().load_state_dict(state_dict, strict, assign)

    def _by_own_names(self, saved: Mapping[str, Any]) -> Mapping[str, Any]:
        own = self.state_dict()
        if saved.keys() <= own.keys():
            return saved
        names = {id(weight): name for name, weight in own.items()}
        written = revert_weight_conversion(self, own)
        renamed = {name: names.get(id(weight)) for name, weight in written.items()}
        joined = [name for name in saved if name in renamed and renamed[name] is None]
        # A policy that was loaded from the checkpoint has them already.
        others = [name for name in joined if not torch.equal(saved[name].to(written[name]), written[name])]
        if others:
            raise CheckpointError(
                f"Got {len(others)} weights under names such as {others[0]!r}, which a model that exists "
                "cannot take: save_pretrained has cut or joined them. Make the trainer with the policy that "
                "AutoVLMPolicy.from_pretrained(checkpoint) loads; to resume, pass it the checkpoint as well."
            )
        return {renamed.get(name) or name: weight for name, weight in saved.items() if name not in joined}
