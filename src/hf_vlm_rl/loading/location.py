"""Where a checkpoint is, what kind it is, and which commit of the Hub was read."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, cached_file

from ..errors import CheckpointError, UnsupportedModelError

# Arguments of `from_pretrained` that the config, the model and the processor take alike.
HUB_ARGUMENTS = (
    "cache_dir",
    "force_download",
    "local_files_only",
    "proxies",
    "revision",
    "subfolder",
    "token",
    "trust_remote_code",
)

# A folder inside the Hub's cache says which repository and commit it holds.
SNAPSHOT = re.compile(r"models--([^/\\]+)[/\\]snapshots[/\\]([0-9a-f]{40})")


# `name` or `user/name`; anything else has to be a directory.
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def check_location(source: str) -> None:
    """Refuse what is neither a directory nor a Hub id.

    Raises:
        CheckpointError: If there is no such directory, and it cannot be an id either.
    """
    if not Path(source).is_dir() and not HUB_ID.fullmatch(source):
        kind = "a file" if Path(source).is_file() else "not there"
        raise CheckpointError(f"{source!r} is {kind}. Expected a directory, or a Hub id such as user/model.")


def file_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `HUB_ARGUMENTS` that say where a single file is."""
    return {key: arguments[key] for key in HUB_ARGUMENTS if key in arguments and key != "trust_remote_code"}


def read_config(source: str, located: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a model.

    Raises:
        CheckpointError: If there is no such directory, no config.json in it, or no `model_type` in that.
        OSError: If there is no such repository.
        UnsupportedModelError: If there is an adapter instead.
    """
    check_location(source)
    config, _ = PreTrainedConfig.get_config_dict(source, **located)
    if isinstance(config.get("model_type", ""), list | dict | int | float):
        raise CheckpointError(
            f"config.json of {source!r} has the model_type {config['model_type']!r}. Expected a name, "
            "such as 'qwen3_vl'; download the checkpoint again."
        )
    if "model_type" in config:
        return config
    adapter = cached_file(source, ADAPTER_CONFIG_NAME, **located, _raise_exceptions_for_missing_entries=False)
    if adapter is not None:
        base = json.loads(Path(adapter).read_text(encoding="utf-8")).get("base_model_name_or_path")
        raise UnsupportedModelError(
            f"{source!r} is a PEFT adapter. Expected a model, such as the adapter's base: {base!r}."
        )
    if config:
        raise CheckpointError(
            f"config.json of {source!r} has no model_type: it is not the config of a model."
        )
    inside = sorted(str(path.parent) for path in Path(source).glob("*/*config.json"))
    meant = f" Did you mean {inside[-1]!r}?" if inside else ""
    raise CheckpointError(
        f"{source!r} has no config.json. Expected a directory that save_pretrained wrote, or a Hub id.{meant}"
    )


def loaded_commit(source: str, located: Mapping[str, Any]) -> str | None:
    """The commit that `from_pretrained` read; None for a directory that is not the Hub's cache."""
    path = cached_file(source, CONFIG_NAME, **located)
    snapshot = SNAPSHOT.search(str(path))
    return snapshot[2] if snapshot else None
