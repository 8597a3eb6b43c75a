"""Put an adapter on a policy, and refuse one that does not fit."""

import warnings
from typing import Any

from peft import PeftModel, get_peft_model

from ...errors import CheckpointError
from ...policy.trained.fingerprint import other_weight
from ...policy.trained.parts import check_trained
from .effect import has_effect, is_finite
from .files import STAGES
from .patterns import name_modules
from .source import Adapter

NAME = "default"


def attach_adapter(
    policy: Any, adapter: Adapter, trainable: bool, revision: str | None, same_weights: bool
) -> PeftModel:
    """The policy, changed in place, with the adapter on it: a stock `PeftModel` in eval mode.

    `revision` is the base's, for the config that the adapter is saved with. `same_weights` refuses a base
    with other weights than the adapter was trained on, where those are known.

    Raises:
        CheckpointError: If the base has other weights, the adapter's tensors and the model's do not match
            one to one, one of them is not finite, or the adapter changes nothing and is not to be trained.
    """
    config = adapter.config
    trained_on = (config.auto_mapping or {}).get("base_model_class")
    if trained_on not in (None, type(policy).__name__):
        raise CheckpointError(
            f"{_pair(policy, adapter)} do not fit: it was trained on a {trained_on}. {_ADVICE}"
        )
    different = other_weight(policy, config.auto_mapping or {}) if same_weights else None
    if different is not None:
        raise CheckpointError(
            f"The adapter {adapter.source!r} was trained on other weights than those of "
            f"{str(policy.name_or_path)!r}: {different}. Name the model that it was trained on: "
            "base_model=<Hub id or directory>. To put it on this one all the same: "
            "PeftModel.from_pretrained(AutoVLMPolicy.from_pretrained(base), adapter)."
        )
    config.inference_mode = not trainable
    # From where the base was loaded now: it may have moved since the adapter was saved.
    config.base_model_name_or_path, config.revision = policy.name_or_path, revision
    try:
        name_modules(config, policy)
        model = get_peft_model(policy, config, NAME)
        result = model.load_adapter(str(adapter.directory), NAME, is_trainable=trainable)
    except (ValueError, KeyError) as error:
        # PEFT finds no target module, or misses a module that was saved whole.
        raise CheckpointError(f"{_pair(policy, adapter)} do not fit: {error} {_ADVICE}") from error
    except RuntimeError as error:
        first = next((line for line in str(error).splitlines() if "size mismatch" in line), None)
        if first is None:  # out of memory, for one
            raise
        raise CheckpointError(f"{_pair(policy, adapter)} do not fit: {first.strip()} {_ADVICE}") from error
    if result.missing_keys or result.unexpected_keys:
        raise CheckpointError(
            f"{_pair(policy, adapter)} do not fit: {_count(result.unexpected_keys)} of the adapter are not "
            f"in the model and {_count(result.missing_keys)} of the model are not in the adapter. {_ADVICE}"
        )
    if not is_finite(model, NAME):
        raise CheckpointError(f"The adapter {adapter.source!r} has weights that are not finite numbers.")
    if not has_effect(model.eval(), NAME):
        message = f"The adapter {adapter.source!r} changes nothing: with it, the model is its base."
        if not trainable:
            raise CheckpointError(f"{message} Train it first; trainable=True loads it for that.")
        warnings.warn(message, stacklevel=4)
    elif trainable and STAGES not in (config.auto_mapping or {}):
        unknown = {"trainer": None, "method": None, "steps": None}
        config.auto_mapping = {**(config.auto_mapping or {}), STAGES: [unknown]}
    # Newer TRL gives the policy another forward; the wrapper's stays.
    model.register_forward_pre_hook(_check_trained, with_kwargs=True)
    return model


def _check_trained(model: PeftModel, args: tuple, kwargs: dict[str, Any]) -> None:
    check_trained(model, kwargs)


_ADVICE = "Check which model the adapter was trained on; base_model=... loads another one."


def _pair(policy: Any, adapter: Adapter) -> str:
    kind = f"{policy.config.model_type}, {type(policy).__name__}"
    return f"The adapter {adapter.source!r} and the base {str(policy.name_or_path)!r} ({kind})"


def _count(keys: list[str]) -> str:
    return f"{len(keys)} tensors ({', '.join(sorted(keys)[:2])})" if keys else "0 tensors"
