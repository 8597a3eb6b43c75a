"""Where a checkpoint is, and which commit of the Hub was read."""

import re
from collections.abc import Mapping
from typing import Any

from transformers.utils import CONFIG_NAME, cached_file

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


def file_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `HUB_ARGUMENTS` that say where a single file is."""
    return {key: arguments[key] for key in HUB_ARGUMENTS if key in arguments and key != "trust_remote_code"}


def loaded_commit(source: str, located: Mapping[str, Any]) -> str | None:
    """The commit that `from_pretrained` read; None for a directory that is not the Hub's cache.

    Args:
        source: Hub id or directory.
        located: `revision`, `token`, `cache_dir`, ... as `cached_file` takes them.
    """
    path = cached_file(source, CONFIG_NAME, **located)
    snapshot = SNAPSHOT.search(str(path))
    return snapshot[2] if snapshot else None
