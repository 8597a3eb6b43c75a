"""The model type behind value and reward models: a family's backbone with a scalar head.

transformers has no `...ForSequenceClassification` for most vision-language families. The class made
here has that name, and the module of the family's own classes: transformers then applies the
family's checkpoint key conversions to it, on load and on save.
"""

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)
from transformers.modeling_outputs import SequenceClassifierOutputWithPast

from .._saved_names import SavedNames
from ..compat import CACHE
from ..families import VLMFamily
from ..policy.trained.lora import lora_config
from ..processing.tokenizer import VLMTokenizer

SUFFIX, SCORED = "ForConditionalGeneration", "ForSequenceClassification"


if TYPE_CHECKING:  # what it finds in the class that it is mixed into
    from peft import LoraConfig

    _StockModel = PreTrainedModel
else:
    _StockModel = object


class VLMScored(SavedNames, _StockModel):
    """Mixed into a family's `PreTrainedModel`: `model`, the backbone, and `score`, a linear head."""

    base_model_prefix = "model"
    _keys_to_ignore_on_load_unexpected = [r"^lm_head\."]  # noqa: RUF012 - transformers declares a list
    _backbone_class: type
    _origin: tuple

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = self._backbone_class(config)
        text: Any = config.get_text_config()
        labels: Any = self.num_labels
        self.score = nn.Linear(text.hidden_size, labels, bias=False)
        self.post_init()

    def __reduce_ex__(self, protocol: Any) -> tuple:
        # The class cannot be imported by its name, so say how to find it.
        return (_new, self._origin, *super().__reduce_ex__(protocol)[2:])

    @property
    def processing_class(self) -> VLMTokenizer:
        """The processing class whose tickets this model resolves."""
        return self.model.processing_class

    @property
    def family(self) -> VLMFamily:
        """The row that describes this kind of model."""
        return self.processing_class.state.family

    def lora_config(self, r: int = 16, target: Any = "language", **peft_kwargs: Any) -> "LoraConfig":
        """A `peft.LoraConfig` that trains adapters and the whole `score`; see `trained.lora.lora_config`."""
        return lora_config(
            self, r, target, **{"task_type": "SEQ_CLS", "modules_to_save": ["score"]} | peft_kwargs
        )

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutputWithPast:
        """Scores of B rows.

        Args:
            input_ids: (B, L), images as tickets inside the ids or beside them.
            attention_mask: (B, L), padding on either side. Without it, no token is padding.
            labels: Targets for transformers' classification loss, if wanted.
            **kwargs: As for the family's backbone.

        Returns:
            `logits` (B, num_labels): the score at each row's last token that is not padding.

        Raises:
            ValueError: If `input_ids` is missing, or there are labels for each token.
        """
        if labels is not None and labels.ndim > 1:
            raise ValueError(
                f"Got labels of shape {tuple(labels.shape)}, for each token, as PRMTrainer makes them. This "
                "model scores a row at its last token. Expected labels (B,), or RewardTrainer with rows that "
                "end after a step (docs/trainers.md)."
            )
        if input_ids is None:
            raise ValueError("Got no input_ids. A score is read at the last token of each row of ids.")
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        last = (places * seen.to(places.dtype)).argmax(dim=1)  # (B,)
        rows = torch.arange(len(input_ids), device=input_ids.device)
        logits = self.score(output.last_hidden_state[rows, last])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutputWithPast(
            loss=loss,
            logits=logits,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
            **{CACHE: output.get(CACHE)},
        )


@functools.cache
def scored_class(stock: Any, backbone: Any) -> Any:
    """The class of a family's scored models, a `VLMScored` and a `PreTrainedModel`, with its backbone."""
    base = next(cls for cls in stock.__mro__[1:] if issubclass(cls, PreTrainedModel))
    name = stock.__name__.removesuffix(SUFFIX) + SCORED
    conversions = get_checkpoint_conversion_mapping(stock.__name__)
    if conversions is not None:  # kept under the class's name and not under the model type
        register_checkpoint_conversion_mapping(name, conversions, overwrite=True)
    members = {
        "__module__": stock.__module__,
        "__qualname__": name,
        "__doc__": f"`{backbone.__name__}` with a linear head on the last token.",
        "_backbone_class": backbone,
        "_origin": (stock, backbone),
    }
    return type(name, (VLMScored, base), members)


def _new(stock: Any, backbone: Any) -> Any:
    cls = scored_class(stock, backbone)
    return cls.__new__(cls)
