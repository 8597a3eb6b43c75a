"""From an adapter to its base as a policy, with the adapter on it."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, ProcessorMixin
from transformers.utils.peft_utils import find_adapter_config_file

from ...errors import CheckpointError, UnsupportedModelError
from ...families.derive_inputs import image_token_id
from ..location import file_arguments, loaded_commit, read_config
from .effect import tied_layer
from .patterns import has_patterns
from .source import Adapter

COMMIT = re.compile(r"[0-9a-f]{40}")


def load_on_base(
    adapter: Adapter,
    load: Callable,
    kwargs: Mapping[str, Any],
    *,
    base_model: str | os.PathLike | None,
    base_revision: str | None,
    trainable: bool,
    merge: bool,
) -> Any:
    """Load the base of an adapter and put the adapter on it.

    `load` makes a policy of a model's source, Hub arguments, `kwargs` and `processor_at`. The other arguments
    are those of `AutoVLMPolicy.from_pretrained`.

    Returns:
        A `PeftModel` around the policy; with `merge`, the policy. Both in eval mode.

    Raises:
        CheckpointError: If the adapter's files are unusable, its base cannot be found, or both do not
            fit; with `merge`, if it is on a weight that the base ties to another.
        ValueError: If arguments contradict each other.
    """
    from .attach import attach_adapter

    if merge and trainable:
        raise ValueError("Got merge=True and trainable=True. A merged adapter is no longer there to train.")
    adapter.check_weights()
    base, hub = adapter.base(base_model, base_revision)
    stored = _base_config(adapter, base, hub)
    beside = find_adapter_config_file(base, **file_arguments(hub))
    if beside is not None:  # transformers would load that adapter below this one
        own = Path(beside).parent.resolve() == adapter.directory.resolve()
        if not own or has_patterns(adapter.config):
            raise CheckpointError(
                f"The base of the adapter {adapter.source!r}, {base!r}, has an adapter_config.json itself. "
                "Expected a model alone: merge that adapter first, and name what was saved: base_model=..."
            )
    if base_model is not None and base_revision is None:
        _check_commit(adapter, base, hub)
    if merge and (kwargs.get("quantization_config") or stored.get("quantization_config")):
        raise ValueError(
            f"Got merge=True, and {base!r} is loaded with quantised weights, into which a merge is rounded. "
            "Merge into a base that is not quantised, save the policy, and quantise what was saved."
        )
    policy = load(base, hub, kwargs=kwargs, processor_at=adapter.processor()).eval()
    # A caller who names a revision accepts its weights.
    model = attach_adapter(policy, adapter, trainable, hub.get("revision"), base_revision is None)
    if not merge:
        return model
    if tied := tied_layer(model):
        raise CheckpointError(
            f"Got merge=True, and the adapter {adapter.source!r} is on {tied}, whose weight {base!r} uses in "
            "another module too: merged into it, the adapter would change both. Load it without merge=True."
        )
    policy = model.merge_and_unload()
    # The base is neither what the next adapter is trained on, nor the reference that trainers load.
    policy.name_or_path = policy.config.name_or_path = ""
    policy.config._commit_hash = None
    return policy


def check_processor(processor: ProcessorMixin, config: PreTrainedConfig, source: str, base: str) -> None:
    """Compare the processor that was saved with an adapter with the base's config.

    Raises:
        CheckpointError: If the base's image token is an ordinary word of the processor, or the base has too
            few embeddings for its tokens.
    """
    tokenizer, image = processor.tokenizer, image_token_id(config, processor)
    # A base has an embedding for its own image token, which may lie behind those of the words (mllama).
    tokens, rows = len(tokenizer), max(config.get_text_config().vocab_size, image + 1)
    if image not in tokenizer.added_tokens_decoder or tokens > rows:
        token = tokenizer.convert_ids_to_tokens(image) if image < tokens else None
        kind = type(processor).__name__
        raise CheckpointError(
            f"{source!r} has a {kind} with {tokens} tokens, of which {image} is {token!r}; its base "
            f"{base!r} ({config.model_type}) has {rows} embeddings, and its image token is {image}. "
            "Check which model the adapter was trained on; base_model=... loads another one."
        )


def _base_config(adapter: Adapter, base: str, hub: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return read_config(base, file_arguments(hub))
    except (OSError, UnsupportedModelError) as error:
        at = f" at revision {hub['revision']!r}" if "revision" in hub else ""
        raise CheckpointError(
            f"The base of the adapter {adapter.source!r}, {base!r}{at}, cannot be read: {error} If it is "
            "elsewhere: base_model=<Hub id or directory>, base_revision=<its revision>."
        ) from error


def _check_commit(adapter: Adapter, base: str, hub: Mapping[str, Any]) -> None:
    trained, loaded = adapter.config.revision, loaded_commit(base, file_arguments(hub))
    if trained and COMMIT.fullmatch(trained) and loaded and loaded != trained:
        raise CheckpointError(
            f"{adapter.source!r} was trained on commit {trained} of "
            f"{adapter.config.base_model_name_or_path!r}, and {base!r} is at {loaded}. Give that commit, or "
            f"accept this one: base_revision={loaded!r}."
        )
