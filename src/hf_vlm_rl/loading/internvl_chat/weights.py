"""Original weights -> the stock model, through transformers' own loading path."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers import InternVLConfig, InternVLForConditionalGeneration
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
    revert_weight_conversion,
)

from ...errors import CheckpointError
from .files import Files
from .mapping import mapping_for
from .shards import DERIVED, StoredTensor, check_tensors, stored_tensors

HEAD_KEYS = ("language_model.lm_head.weight", "language_model.output.weight")


def has_head(tensors: Mapping[str, StoredTensor]) -> bool:
    """Whether the language model's head is stored."""
    return any(key in tensors for key in HEAD_KEYS)


def skeleton(config: InternVLConfig, backbone: str | None = None) -> InternVLForConditionalGeneration:
    """The model without memory for its weights.

    Args:
        config: The converted config.
        backbone: Class name of the original language model: the skeleton then stands for the
            original format, that is transformers converts names from and to it. None: for its own.
    """
    config = copy.deepcopy(config)
    if backbone is not None:
        # Where transformers looks its conversions up; an attribute of this one object.
        config.model_type = mapping_for(backbone)
    with torch.device("meta"):
        model = InternVLForConditionalGeneration(config)
    if backbone is not None:
        model._weight_conversions = transforms(model)
    return model


def transforms(model: InternVLForConditionalGeneration) -> list[WeightRenaming | WeightConverter]:
    """How transformers turns the original weights into `model`'s, in order."""
    found = get_model_conversion_mapping(model, add_legacy=False)
    # Scoped to the whole backbone: from transformers' own naming to the same. Reversed, it would
    # come on top of ours. What is scoped to the language model (its experts) belongs here.
    return [entry for entry in found if entry.scope_prefix != ""]


def original_shapes(config: InternVLConfig, backbone: str) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that a checkpoint in the original format stores, by original name."""
    model = skeleton(config, backbone)
    state = model.state_dict()
    if config.tie_word_embeddings:
        state = {key: value for key, value in state.items() if key != "lm_head.weight"}
    return {key: tuple(value.shape) for key, value in revert_weight_conversion(model, state).items()}


def check_weights(files: Files, tensors: Mapping[str, StoredTensor], config: Any, backbone: str) -> None:
    """Compare a checkpoint's headers with its config; see `shards.check_tensors`."""
    check_tensors(tensors, original_shapes(config, backbone), files)


def load_weights(
    files: Files, config: InternVLConfig, backbone: str, **kwargs: Any
) -> InternVLForConditionalGeneration:
    """The stock model with the original weights.

    Args:
        files: The checkpoint.
        config: The converted config.
        backbone: Class name of the original language model.
        **kwargs: As for `from_pretrained`.

    Raises:
        CheckpointError: If a weight is missing, unexpected or of another shape.
    """
    check_weights(files, stored_tensors(files), config, backbone)
    asked = kwargs.pop("output_loading_info", False)
    if asked:
        raise ValueError("Got output_loading_info=True. A missing or unexpected weight is an error here.")
    stored = copy.deepcopy(config)
    stored.model_type = mapping_for(backbone)
    model, report = InternVLForConditionalGeneration.from_pretrained(
        files.source, config=stored, output_loading_info=True, **files.located, **kwargs
    )
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


def convert_weights(
    model: InternVLForConditionalGeneration, tensors: Mapping[str, Any]
) -> Iterator[dict[str, torch.Tensor]]:
    """Convert weight by weight, in groups that belong together (one fused weight, one MoE layer).

    Args:
        model: A skeleton for the original format.
        tensors: Original name -> a function that reads the tensor.

    Yields:
        Names of the stock model's state dict and their tensors.
    """
    steps = transforms(model)
    renamings = [entry for entry in steps if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in steps if isinstance(entry, WeightConverter)]
    by_pattern = {pattern: entry for entry in converters for pattern in entry.source_patterns}
    groups: dict[str, WeightRenaming | WeightConverter] = {}
    for key in sorted(tensors, key=dot_natural_key):
        name, pattern = rename_source_key(key, renamings, converters)
        if name not in groups:
            groups[name] = (
                WeightRenaming(key, name) if pattern is None else copy.deepcopy(by_pattern[pattern])
            )
        groups[name].add_tensor(name, key, pattern or key, tensors[key])
    for name in list(groups):
        values = groups.pop(name).convert(name, model=model, config=model.config)
        yield {key: value[0] if isinstance(value, list) else value for key, value in values.items()}
