"""Which commit of the Hub a checkpoint came from."""

import re
from collections.abc import Mapping
from typing import Any

from transformers.utils import CONFIG_NAME, cached_file

# A folder inside the Hub's cache says which repository and commit it holds.
SNAPSHOT = re.compile(r"models--([^/\\]+)[/\\]snapshots[/\\]([0-9a-f]{40})")


def loaded_commit(source: str, located: Mapping[str, Any]) -> str | None:
    """The commit that `from_pretrained` read; None for a directory that is not the Hub's cache.

    Args:
        source: Hub id or directory.
        located: `revision`, `token`, `cache_dir`, ... as `cached_file` takes them.
    """
    path = cached_file(source, CONFIG_NAME, **located)
    snapshot = SNAPSHOT.search(str(path))
    return snapshot[2] if snapshot else None
