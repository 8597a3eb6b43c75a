"""The base model of an adapter: its id and commit on the Hub, and its license."""

import dataclasses
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id
from transformers.utils import logging

from ..loading.formats import ORIGINAL_FORMATS
from ..loading.location import SNAPSHOT
from .cards.adapter_facts import quantization
from .cards.facts import BaseFacts
from .cards.merge import LICENSE

logger = logging.get_logger(__name__)


def base_facts(model: Any, base_model: str | None = None, base_revision: str | None = None) -> BaseFacts:
    """What a `PeftModel` knows about the checkpoint of its base, unless the caller names another.

    Raises:
        ValueError: If `base_model` is no id on the Hub.
    """
    # transformers sets both on the configs that it loads; a config made by hand may have neither.
    source = getattr(model.config, "_name_or_path", None)
    base = recorded(source, getattr(model.config, "_commit_hash", None))
    for config in model.peft_config.values():
        if base.model_id is None:  # a copy of the base: where the adapter was first trained
            base = recorded(config.base_model_name_or_path, config.revision)
    base = overridden(base, base_model, base_revision)
    stock = not _is_original(source, base.model_id)
    return dataclasses.replace(base, stock=stock, quantization=quantization(model))


def overridden(base: BaseFacts, base_model: str | None, base_revision: str | None) -> BaseFacts:
    """`base` with the id and the revision that a caller gives; another id does not keep the commit.

    Raises:
        ValueError: If `base_model` is no id on the Hub.
    """
    if base_model is not None:
        if not _is_id(base_model):
            raise ValueError(
                f"Got base_model={base_model!r}. Expected an id on the Hub, as 'Qwen/Qwen2.5-VL-3B-Instruct'."
            )
        commit = base.revision if base_model == base.model_id else None
        base = dataclasses.replace(base, model_id=base_model, revision=commit)
    return dataclasses.replace(base, revision=base_revision or base.revision)


def recorded(source: str | None, revision: str | None) -> BaseFacts:
    """A base from what was noted when it was loaded; without an id if it is on the Hub under no known one.

    A path inside the Hub's cache tells id and commit by itself.
    """
    cached = SNAPSHOT.search(source or "")
    if cached:
        return BaseFacts(cached[1].replace("--", "/"), cached[2])
    if not source or not _is_id(source) or Path(source).exists():
        return BaseFacts()
    return BaseFacts(source, revision)


def with_license(base: BaseFacts, api: HfApi) -> BaseFacts:
    """`base` with the license that its card on the Hub states; as it is without a `model_id`."""
    if base.model_id is None:
        return base
    try:
        data = api.model_info(base.model_id).card_data
    except (GatedRepoError, RepositoryNotFoundError):
        logger.warning(
            f"Cannot read the card of the base model {base.model_id} on the Hub; the adapter's card gets "
            "no license from it. Pass card=AdapterCardData(license=...)."
        )
        return base
    stated = {key: data.get(key) for key in LICENSE} if data is not None else {}
    return dataclasses.replace(base, **stated)


def _is_original(source: str | None, model_id: str | None) -> bool:
    from transformers import PreTrainedConfig

    for place in filter(None, (source, model_id)):
        try:
            stored, _ = PreTrainedConfig.get_config_dict(place, local_files_only=True)
        except OSError:
            continue
        return stored.get("model_type") in ORIGINAL_FORMATS
    return False


def _is_id(source: str) -> bool:
    try:
        validate_repo_id(source)
    except HFValidationError:
        return False
    return True
