"""LLaVA's and VLM-R1's files: `image` and `conversations`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset

from ..errors import DataError
from .conversations import split_turns, started
from .passes.column_types import Kind
from .passes.first_pass import Part
from .passes.report import LoadReport, OnError
from .passes.second_pass import Options, build
from .passes.sources import Extras, JsonSource, folder_of, names, paths_of
from .turns import Marks, column_images

READ = frozenset({"conversations", "image", "images", "video", "videos"})


@dataclass(frozen=True)
class LlavaReader:
    """Rows of records with `conversations`.

    Attributes:
        folder: Absolute; paths of images are relative to it.
        answer: Name of the column with the last answer; None for none.
        completion: Whether there is a column `completion`, the last answer as messages.
        system: A system message for rows without one.
        mark: What stands for an image in a text.
        extras: What happens to all other fields.
    """

    folder: str
    answer: str | None = "answer"
    completion: bool = False
    system: str | None = None
    mark: str = "<image>"
    extras: Extras = field(default_factory=Extras)

    @cached_property
    def _marks(self) -> Marks:
        return Marks(self.mark)

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """prompt, images, and the answer as asked for."""
        kinds = {"prompt": "messages", "images": "images"}
        if self.answer is not None:
            kinds[self.answer] = "string"
        return kinds | ({"completion": "messages"} if self.completion else {})

    def row(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `Reader.row`."""
        if "conversations" not in record:
            raise DataError(f"the row has {sorted(record)}; expected 'conversations', and 'image' for images")
        said = record["conversations"]
        turns = started(said, self._marks, self.folder, self.system, "conversations")
        made = split_turns(turns, column_images(record, self.folder), self.answer, self.completion)
        return made, self.extras.of(record, READ, self.kinds, self.answer)


def load_llava(
    path: str | os.PathLike | Sequence[str | os.PathLike],
    image_folder: str | os.PathLike | None = None,
    *,
    answer: str | None = "answer",
    completion: bool = False,
    system: str | None = None,
    image_mark: str = "<image>",
    drop: Sequence[str] = (),
    strings: Sequence[str] = (),
    on_error: OnError = "raise",
    num_proc: int | None = None,
    streaming: bool = False,
    check_images: bool = True,
    verify_images: bool = False,
    cache_dir: str | os.PathLike | None = None,
    report: LoadReport | None = None,
) -> Dataset | IterableDataset:
    """Read LLaVA or VLM-R1 rows: `image` (a path, a list, or nothing) and `conversations`.

    The rows are checked in a first pass, so that errors come here and not in training, and written to
    `datasets`' cache in a second. The cache is used as long as path, size and time of change of the files
    and all arguments stay the same; images are not looked at again then.

    Args:
        path: A JSON Lines file or a JSON list, or several files, whose rows follow each other.
        image_folder: Paths of images are relative to it. Default: each file's own folder.
        answer: Name of the column for the last answer of the assistant, a string, None where the
            conversation ends with the user; VLM-R1's rewards read "solution". None: no such column.
        completion: Also give the last answer as messages in the column `completion`, for `SFTTrainer`.
        system: A system message for conversations that have none.
        image_mark: Stands in what users say for the images, in order; a line break beside it is part of
            it. In a row without any, the images come first.
        drop: Names of fields to leave out.
        strings: Names of fields to keep as text: strings as they are, other values as JSON.
        on_error: "raise" at the first bad row; "skip" bad rows, and log how many and why; or a callable
            that gets each bad row's DataError, the row being skipped.
        num_proc: Processes that write the rows.
        streaming: Give an `IterableDataset` of the same rows and features, which writes nothing to disk.
            The first pass takes place all the same.
        check_images: Look whether each image file is there; URLs are not looked at.
        verify_images: Read each image file's header, too, with eight threads.
        cache_dir: Instead of `datasets`' own cache.
        report: Filled with the numbers of rows and of skipped rows.

    Returns:
        Rows with the columns `prompt` (messages of blocks, up to the last turn of the user, an
        `{"type": "image"}` block for each image), `images` (decoded to RGB when a row is read; empty for
        text), the answer, and every other field.

    Raises:
        DataError: If a file cannot be used, or a row of it; names file and line (index in a JSON list).
    """
    options = Options(on_error, num_proc, streaming, check_images, verify_images, cache_dir, report)
    extras = Extras(names(drop, "drop"), names(strings, "strings"))
    parts = [
        Part(
            JsonSource(
                Path(each),
                LlavaReader(folder_of(each, image_folder), answer, completion, system, image_mark, extras),
            )
        )
        for each in paths_of(path)
    ]
    return build(parts, options)
