"""The data files of a checkpoint, in a directory or on the Hub; nothing is ever executed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from ...errors import CheckpointError


@dataclass(frozen=True)
class Files:
    """Where a checkpoint is; `located` has `revision`, `token`, ... of transformers' `cached_file`."""

    source: str
    located: Mapping[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> Path | None:
        """The local path of a file, downloaded if need be; None if the checkpoint has none."""
        # Without this, a missing file is an error whose message speaks of internet connections.
        path = cached_file(self.source, name, **self.located, _raise_exceptions_for_missing_entries=False)
        return None if path is None else Path(path)

    def path(self, name: str) -> Path:
        """As `find`.

        Raises:
            CheckpointError: If the checkpoint has no such file.
        """
        path = self.find(name)
        if path is None:
            raise CheckpointError(
                f"{self.source!r} has no file {name}. An InternVL checkpoint in the original format "
                "needs it; download it again."
            )
        return path

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the checkpoint; {} if there is none.

        Raises:
            CheckpointError: If the file is not a complete JSON object.
        """
        path = self.find(name)
        return {} if path is None else read_json(path)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        CheckpointError: If the file is not a complete JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(
            f"{path} is not valid JSON ({error}). It is damaged or truncated; download it again."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, expected a JSON object.")
    return content
