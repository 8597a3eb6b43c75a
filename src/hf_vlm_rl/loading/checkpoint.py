"""Everything of a checkpoint but its weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedConfig, ProcessorMixin

from .formats import reader_of
from .location import file_arguments, read_config
from .stock import load_config, load_processor


@dataclass(frozen=True)
class Checkpoint:
    """What is read of a checkpoint: everything but its weights.

    Attributes:
        source: Hub id or directory.
        config: Its config, in transformers' format.
        processor: Its native processor.
        stored: Its config.json; empty for a model that was never saved.
    """

    source: str
    config: PreTrainedConfig
    processor: ProcessorMixin
    stored: Mapping[str, Any] = field(default_factory=dict)


def read_checkpoint(source: str, located: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read config and processor; weights are not downloaded.

    Raises:
        CheckpointError: If there is no config.json.
        UnsupportedModelError: If it is no vision-language model, or an adapter.
    """
    located = dict(located or {})
    stored = read_config(source, file_arguments(located))
    original = reader_of(stored["model_type"])
    if original is not None:
        config, processor = original.read_headers(source, stored, file_arguments(located))
    else:
        config, processor = load_config(stored, source, located), load_processor(source, located)
    return Checkpoint(source, config, processor, stored)
