"""The reader of a file by its first row: of LLaVA's records, or of messages of one form."""

import os
from collections.abc import Mapping
from typing import Any

from .llava import LlavaReader
from .messages import of_first_form
from .passes.options import Options
from .passes.sources import Source, file_source


def any_source(path: str | os.PathLike, folder: str, options: Options) -> Source:
    """The rows of a file; the first that tells its form says of which.

    Raises:
        DataError: If the file cannot be used, or no row tells its form.
    """
    return any_form(file_source(path, LlavaReader(folder, options)), folder, options)


def any_form(unread: Source, folder: str, options: Options) -> Source:
    """A source of LLaVA's records, as it is, or with the reader of messages if its first row has them."""
    return of_first_form(unread, folder, options, _is_llava)


def _is_llava(record: Any) -> bool:
    fields = record if isinstance(record, Mapping) else {}
    return fields.get("conversations") is not None or fields.get("problem") is not None
