"""Arguments of `from_pretrained` that say where a checkpoint is."""

from collections.abc import Mapping
from typing import Any

# For the config, the model and the processor alike.
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


def file_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `HUB_ARGUMENTS` that say where a single file is."""
    return {key: arguments[key] for key in HUB_ARGUMENTS if key in arguments and key != "trust_remote_code"}
