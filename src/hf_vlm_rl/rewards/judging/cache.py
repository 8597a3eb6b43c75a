"""Verdicts on disk, for other processes and later runs."""

import contextlib
import logging
import os
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)


class VerdictCache:
    """A folder of verdicts as the server wrote them, each named by the hash of its question.

    Threads and processes share it: a file appears whole or not at all. Nothing is ever deleted, and no
    question, image or completion is written.

    Args:
        folder: Created where it is missing.

    Raises:
        OSError: If it cannot be written to.
    """

    def __init__(self, folder: str | os.PathLike):
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder):
            pass

    def read(self, key: str) -> str | None:
        """The verdict of a question; None if there is none that can be read."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return self._path(key).read_text(encoding="utf-8")
        return None

    def write(self, key: str, verdict: str) -> None:
        """Keep a verdict. A disk that is full costs the next request, not this run: it is a warning."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(verdict)
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            logger.warning("A judge's verdict could not be kept: %s", error)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
