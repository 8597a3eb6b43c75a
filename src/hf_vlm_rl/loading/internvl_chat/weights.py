"""Original weights -> the stock model, through transformers' own loading path."""

import copy
from collections.abc import Collection, Mapping
from typing import Any

import torch
from transformers import InternVLConfig, InternVLForConditionalGeneration
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion

from ...errors import CheckpointError
from ..damage import damage_named
from ..stock import without_weights
from .files import Files
from .mapping import mapping_for
from .shards import DERIVED, check_tensors, stored_tensors

HEAD_KEYS = ("language_model.lm_head.weight", "language_model.output.weight")


def has_head(tensors: Collection[str]) -> bool:
    """Whether the language model's head is stored."""
    return any(key in tensors for key in HEAD_KEYS)


def in_original_names(
    config: InternVLConfig, backbone: str, tensors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Tensors of the stock model's state dict under the names and in the layouts of the original format.

    `backbone` is the class name of the original language model.
    """
    model = _without_memory(config, mapping_for(backbone))
    conversions = get_model_conversion_mapping(model, add_legacy=False)
    # transformers keeps here what it loaded a model with, and looks nowhere else when it saves one. Entries
    # with the scope "" rename transformers' own names to the same and would come on top of ours.
    scoped_entries: Any = [entry for entry in conversions if entry.scope_prefix != ""]
    model._weight_conversions = scoped_entries
    return revert_weight_conversion(model, dict(tensors))


def check_weights(files: Files, config: InternVLConfig, backbone: str) -> None:
    """Compare the headers of a checkpoint's files with its config.

    Raises:
        CheckpointError: If a weight is missing, unexpected or of another shape.
    """
    state = _without_memory(config, config.model_type).state_dict()
    if config.tie_word_embeddings:
        del state["lm_head.weight"]
    expected = in_original_names(config, backbone, state)
    check_tensors(stored_tensors(files), {key: value.shape for key, value in expected.items()}, files)


def _of_type(config: InternVLConfig, model_type: str) -> InternVLConfig:
    """A copy whose own `model_type` hides that of its class."""
    config = copy.deepcopy(config)
    vars(config)["model_type"] = model_type
    return config


def _without_memory(config: InternVLConfig, model_type: str) -> InternVLForConditionalGeneration:
    """A skeleton of the model; transformers looks up the conversions of its weights by `model_type`."""
    with without_weights(), damage_named(str(config.name_or_path)):
        return InternVLForConditionalGeneration(_of_type(config, model_type))


def load_weights(
    files: Files, config: InternVLConfig, backbone: str, **kwargs: Any
) -> InternVLForConditionalGeneration:
    """The stock model with the original weights.

    Raises:
        CheckpointError: If a weight is missing, unexpected or of another shape.
    """
    check_weights(files, config, backbone)
    if kwargs.pop("output_loading_info", False):
        raise ValueError("Got output_loading_info=True. A missing or unexpected weight is an error here.")
    stored = _of_type(config, mapping_for(backbone))
    loaded: Any = InternVLForConditionalGeneration.from_pretrained(
        files.source, config=stored, output_loading_info=True, **files.located, **kwargs
    )
    model, report = loaded
    # From here on a stock model: its own model type, and saved as if it had never been another.
    del model.config.model_type
    model.__dict__.pop("_weight_conversions", None)
    wrong = {
        kind: sorted(key for key in map(str, keys) if not key.endswith(DERIVED))
        for kind, keys in report.items()
        if keys
    }
    if any(wrong.values()):
        raise CheckpointError(f"transformers could not load all weights of {files.source!r}: {wrong}")
    return model
