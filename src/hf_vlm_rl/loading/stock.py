"""Transformers' own classes and processor for a checkpoint, and the whole family of its models."""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoProcessor, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_utils import set_zero3_state
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)

from ..compat import require_working_class
from ..errors import CheckpointError, UnsupportedModelError
from ..families import VLMFamily
from ..families.derive_inputs import derive_inputs
from ..families.derive_parts import PARTS, derive_parts, needs_native_inputs
from ..families.registry import family_for
from ..policy.trained.parts import below
from ..processing.make import adopt_template, check_native
from ..processing.tokenizer import VLMTokenizer
from .damage import check_depth, damage_named
from .location import file_arguments
from .remote_code import has_code, imported_class, load_remote_config
from .template_limit import check_template

# Model type to the class with a language-model head; some types stand in one of transformers' tables only.
CHAT_MODELS = MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES | MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES


def load_processor(source: str, hub: Mapping[str, Any]) -> Any:
    """A checkpoint's native processor, padding on the left.

    Raises:
        CheckpointError: If its files are damaged.
        UnsupportedModelError: If its chat template is none, or does not come to an end; if it brings code
            of its own, and `hub` does not say that it is trusted.
    """
    # Without a value, transformers asks at the terminal.
    located = {**hub, "trust_remote_code": bool(hub.get("trust_remote_code"))}
    with damage_named(source), _code_named(source, located["trust_remote_code"]):
        processor = AutoProcessor.from_pretrained(source, padding_side="left", **located)
    check_template(getattr(processor, "chat_template", None), source)  # some processors have none
    return processor


@contextlib.contextmanager
def _code_named(source: str, trusted: bool) -> Iterator[None]:
    """Say in words that a processor needs code that is not trusted."""
    try:
        yield
    except ValueError as error:
        if trusted or "trust_remote_code" not in str(error):
            raise
        raise UnsupportedModelError(
            f"{source!r} has a processor, tokenizer or image processor that comes as code with it (auto_map "
            "in its configs), and transformers has none of that name. Expected trust_remote_code=True, with "
            "which that code runs on this machine: read it first, and fix the revision."
        ) from error


def config_class(model_type: str, source: str) -> type[PreTrainedConfig]:
    """The stock config class of a vision-language model.

    Raises:
        UnsupportedModelError: If transformers knows no vision-language model of this type.
    """
    # By name, not through AutoConfig: `register()` may have pointed the Auto classes to us.
    if model_type in CHAT_MODELS:
        return getattr(transformers, CONFIG_MAPPING_NAMES[model_type])
    # A type that somebody registered with the Auto classes.
    registered = model_type in CONFIG_MAPPING and model_type not in CONFIG_MAPPING_NAMES
    if registered and CONFIG_MAPPING[model_type] in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return CONFIG_MAPPING[model_type]
    if model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise UnsupportedModelError(
            f"{source!r} has model_type {model_type!r}: it is a language model without vision. Expected a "
            "vision-language model; TRL's trainers take others as they are."
        )
    raise UnsupportedModelError(
        f"{source!r} has model_type {model_type!r}, of which transformers {transformers.__version__} has no "
        "image-text-to-text model. Expected one of those in docs/families.md, or register its classes: "
        f"AutoConfig.register({model_type!r}, ...), AutoModelForImageTextToText.register(...), "
        "AutoProcessor.register(...)."
    )


def load_config(stored: Mapping[str, Any], source: str, hub: Mapping[str, Any]) -> PreTrainedConfig:
    """The config of a vision-language model, from its config.json.

    A type that transformers knows is loaded by transformers' own classes, also where the checkpoint brings
    code.

    Raises:
        UnsupportedModelError: As `config_class` and `load_remote_config`.
    """
    model_type = stored["model_type"]
    if has_code(stored) and model_type not in CONFIG_MAPPING:
        return load_remote_config(stored, source, hub)
    check_depth(stored, source)
    with damage_named(source):
        return config_class(model_type, source).from_pretrained(source, **file_arguments(hub))


def chat_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The stock `...ForConditionalGeneration` class for a config."""
    if config.model_type in CHAT_MODELS:
        return getattr(transformers, CHAT_MODELS[config.model_type])
    mapping: Any = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING  # one class for each config
    return imported_class(config) or mapping[type(config)]


def load_complete(
    source: str,
    hub: Mapping[str, Any],
    allow_missing: Sequence[str],
    *,
    config: PreTrainedConfig,
    **kwargs: Any,
) -> PreTrainedModel:
    """The stock model of a checkpoint, all of whose weights are in its files.

    `allow_missing` has names of weights that may start at random, or of modules with such weights.

    Raises:
        CheckpointError: If another weight is missing.
        ValueError: If `output_loading_info` is given, or `allow_missing` is one name and no list.
    """
    if isinstance(allow_missing, str):
        raise ValueError(f"Got {allow_missing=}. Expected a list, such as [{allow_missing!r}].")
    if kwargs.pop("output_loading_info", False):
        raise ValueError("Got output_loading_info=True. A missing weight is an error here.")
    with damage_named(source, SafetensorError):
        loaded: Any = chat_class(config).from_pretrained(
            source, config=config, output_loading_info=True, **hub, **kwargs
        )
    model, report = loaded
    missing = sorted(name for name in report["missing_keys"] if not below(name, allow_missing))
    if missing:
        names = ", ".join([*missing[:5], *(["..."] if len(missing) > 5 else [])])
        unread = sorted(report["unexpected_keys"])
        left = f" It has {len(unread)} that the model has no place for: {unread[0]}, ..." if unread else ""
        raise CheckpointError(
            f"{source!r} lacks {len(missing)} of {len(model.state_dict())} weights, which would start at "
            f"random: {names}.{left} Expected all of a {type(model).__name__}: download or save it again. If "
            "they are to start at random, say which, or whose: allow_missing=['lm_head']."
        )
    return model


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """A context in which models are made on the meta device.

    While training arguments with a ZeRO-3 configuration exist, transformers divides every new model among the
    ranks. A model on the meta device cannot be divided: `set_zero3_state` says that ZeRO-3 has done its work.
    """
    with torch.device("meta"), set_zero3_state():
        yield


def skeleton(config: PreTrainedConfig) -> PreTrainedModel:
    """The stock model of a config without weights, on the meta device."""
    with without_weights(), damage_named(str(config.name_or_path)):
        return chat_class(config)._from_config(copy.deepcopy(config))


def complete_family(model: PreTrainedModel, processor: Any, native_inputs: bool | None = None) -> VLMFamily:
    """The registered family of a model; what that leaves open is derived from the model and its processor.

    `native_inputs` is that of `VLMFamily`; None: as the family or the model says.

    Raises:
        UnsupportedModelError: If something that is left open cannot be derived, or `processor` is no
            multimodal processor.
        ValueError: If `processor` was made a processing class for the other kind of inputs.
    """
    if isinstance(processor, VLMTokenizer):
        family = processor.state.family
        if native_inputs not in (None, family.native_inputs):
            raise ValueError(
                f"Got native_inputs={native_inputs} and a processing class that was made for "
                f"native_inputs={family.native_inputs}. Load a processor of its own for this model."
            )
        return family
    if hasattr(model, "get_base_model"):
        raise UnsupportedModelError(
            f"Got a {type(model).__name__}. Expected a model without adapters: make the policy first "
            "(from_model(model.get_base_model(), processor)), then wrap it by PEFT."
        )
    if not isinstance(model, GenerationMixin):
        raise UnsupportedModelError(
            f"{type(model).__name__} does not write its answer token by token: transformers gives it no "
            "GenerationMixin (diffusion models refine whole blocks, others give actions). Expected a "
            "decoder-only vision-language model, of whose tokens trainers can take log-probs."
        )
    require_working_class(model.config)
    check_native(processor, model.config.model_type)
    adopt_template(processor)
    family = family_for(model.config.model_type)
    if native_inputs is None and family.native_inputs is None:
        native_inputs = needs_native_inputs(model)
    if native_inputs is not None:
        family = replace(family, native_inputs=native_inputs)
    if family.missing & PARTS:
        family = family.completed(derive_parts(model))
    if family.missing:
        with torch.device("cpu"):  # processors compute, also while a caller builds a model on "meta"
            family = family.completed(derive_inputs(model, processor, family.native_inputs))
    return family
