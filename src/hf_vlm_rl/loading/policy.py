"""A checkpoint that is no adapter, or an adapter's base, becomes a policy."""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from ..families.registry import is_built_in
from ..policy.policy import VLMPolicy, make_policy
from ..policy.sharing.settings import Mode
from ..processing.chat_template import end_turns
from ..processing.images.bounds import check_bounds, image_options, with_options
from ..processing.images.store import ImageStore
from ..processing.make import make_processing_class
from ..processing.tokenizer import VLMTokenizer
from .adapters import check_processor
from .formats import reader_of
from .location import elsewhere, file_arguments, loaded_commit, read_config
from .quantization import decoder_only, finish_quantised
from .self_check import check_family
from .stock import complete_family, load_complete, load_config, load_processor, skeleton


def load_policy(
    source: str,
    hub: Mapping[str, Any],
    *,
    options: Mapping[str, int | None],
    image_store: ImageStore | None,
    sharing: Mode,
    native_inputs: bool | None,
    allow_missing: Sequence[str],
    kwargs: Mapping[str, Any],
    processor_at: tuple[str, Mapping[str, Any]] | None = None,
) -> VLMPolicy:
    """Load a checkpoint as a policy; its processor from `processor_at` (source, Hub arguments), if set."""
    located = file_arguments(hub)
    config_dict = read_config(source, located)
    original = reader_of(config_dict["model_type"])
    kwargs = dict(kwargs)
    config = kwargs.pop("config", None)
    if isinstance(config, str | os.PathLike):
        place, at = os.fspath(config), elsewhere(hub)
        config = load_config(read_config(place, file_arguments(at)), place, at)
    if original:
        checkpoint = original.open_checkpoint(source, config_dict, located)
        config, processor, load = config or checkpoint.config, checkpoint.processor, checkpoint.load_model
    else:
        if config is None:
            config = load_config(config_dict, source, hub)
        load = functools.partial(load_complete, source, hub, allow_missing)
        # Not for original formats: the copy of their processor that an adapter has resizes images otherwise.
        processor = load_processor(*(processor_at or (source, hub)))
        if processor_at is not None:
            check_processor(processor, config, processor_at[0], source)
    processing_class = make_processing(processor, config, options, image_store, native_inputs)
    family = processing_class.state.family
    model = load(config=config, **decoder_only(kwargs, family))
    finish_quantised(model, family)
    if os.path.isdir(source):  # adapters record it, and are loaded from other working directories
        folder = os.path.join(os.path.abspath(source), hub.get("subfolder") or "")
        model.name_or_path = model.config.name_or_path = folder.rstrip(os.sep)
    model.config._commit_hash = loaded_commit(source, located)  # for adapters: which base they belong to
    return finish(model, processing_class, sharing)


def make_processing(
    processor: Any,
    config: PreTrainedConfig,
    options: Mapping[str, int | None],
    image_store: ImageStore | None,
    native_inputs: bool | None,
) -> VLMTokenizer:
    """The processing class of a processor, with the image options of `from_pretrained`."""
    family = complete_family(skeleton(config), processor, native_inputs)
    if native_options := image_options(family, options):
        processor.image_processor = with_options(processor.image_processor, native_options)
    check_bounds(processor.image_processor, family, options)
    return make_processing_class(processor, config, family, image_store)


def finish(model: PreTrainedModel, processing_class: VLMTokenizer, sharing: Mode = "auto") -> VLMPolicy:
    """Make a policy of a loaded model whose generation ends where turns do; an unknown family is checked."""
    generation = model.generation_config
    if generation.pad_token_id is None:
        generation.pad_token_id = processing_class.pad_token_id
    stops = end_turns(processing_class, generation)
    if processing_class.eos_token_id not in stops:
        # The tokenizer's eos ends an answer; without it, generation runs on.
        stops.append(processing_class.eos_token_id)
        generation.eos_token_id = stops if len(stops) > 1 else stops[0]
    policy = make_policy(model, processing_class, sharing)
    if not is_built_in(policy.family.model_type) and policy.device.type != "meta":
        check_family(policy)
    return policy
