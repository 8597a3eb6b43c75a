"""LLaVA's and VLM-R1's files: `image` and `conversations`, or `problem` and `solution`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from datasets import Dataset

from ..errors import DataError
from .conversations import ConversationReader
from .passes.first_pass import Part
from .passes.options import LoadOptions, Options
from .passes.second_pass import build
from .passes.sources import Source, file_source, folder_of, paths_of

READ = frozenset({"conversations", "image", "images", "system", "video", "videos"})
PROBLEM = frozenset({"problem", "solution"})


@dataclass(frozen=True)
class LlavaReader(ConversationReader):
    """Rows of records with `conversations`, or with `problem` and `solution`."""

    def row(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns of a record, as `Reader.row` describes them."""
        options, name = self.options, "conversations"
        messages, read = record.get(name), READ
        if messages is None and record.get("problem") is not None:
            name, read = "problem", READ | PROBLEM
            messages = [
                {"from": role, "value": record.get(field)}
                for role, field in (("human", "problem"), ("gpt", "solution"))
                if record.get(field) is not None
            ]
        elif name not in record:
            raise DataError(
                f"the row has {sorted(record)}; expected 'conversations', or 'problem' and 'solution', and "
                "'image' for images"
                + ("; load_any reads rows of 'messages', too" if "messages" in record else "")
            )
        entries = messages if isinstance(messages, list) else []
        texts = [{**turn, "value": str(turn["value"])} if _has_numbers(turn) else turn for turn in entries]
        turns = self.started(texts or messages, record, name)
        columns = self.split(turns, self.images(record))
        column = options.answer
        if column is not None and (answer := columns[column]) is not None:
            if _has_numbers(entries[-1]):
                answer = entries[-1]["value"]
            elif "answer>" in answer:  # VLM-R1 drops these tags, and no others.
                answer = answer.replace("<answer>", "").replace("</answer>", "").strip()
            columns[column] = options.as_asked(column, answer)
        return columns, options.extras(record, read, self.kinds)


def _has_numbers(message: Any) -> bool:
    """Whether a message's answer is a number or a list of numbers, which VLM-R1 makes text of."""
    if not isinstance(message, Mapping) or message.get("from") not in ("gpt", "assistant"):
        return False
    answer = message.get("value")
    numbers = answer if isinstance(answer, list) and answer else [answer]
    return {int, float} >= set(map(type, numbers))


def llava_source(path: str | os.PathLike, folder: str, options: Options) -> Source:
    """A file of LLaVA's or VLM-R1's rows.

    Raises:
        DataError: If the file cannot be used.
    """
    return file_source(path, LlavaReader(folder, options))


def load_llava(
    path: str | os.PathLike | Sequence[str | os.PathLike],
    image_folder: str | os.PathLike | None = None,
    **options: Unpack[LoadOptions],
) -> Dataset:
    """Read LLaVA or VLM-R1 rows: `image` (a path, a list, or nothing) and `conversations`.

    Instead of `conversations` a row may have `problem` and `solution`. Answers may be numbers or lists of
    numbers, such as boxes, and stay so in the column with the answer (`completion` has them as text). As in
    VLM-R1, the tags `<answer>` and `</answer>` are left out of that column (not of `completion`).
    A field `system`, as LLaMA-Factory writes it, is the conversation's system message.

    The rows are checked in a first pass, so that errors come here and not in training, and written to
    `datasets`' cache in a second. The cache is used as long as path, size and time of change of the files
    and all arguments stay the same; images are not looked at again then.

    Args:
        path: A file as `load_any` reads, or several, whose rows follow each other.
        image_folder: Paths of images are relative to it. Default: each file's own folder.
        **options: `answer`, `system`, `on_error` and others: `LoadOptions` explains them all.

    Returns:
        Rows with the columns `prompt` (messages of blocks, up to the last turn of the user, an
        `{"type": "image"}` block for each image), `images` (decoded when a row is read; empty for
        text), the answer, and every other field.

    Raises:
        DataError: If a file cannot be used, or a row of it; names file and line (index in a JSON list).
        TypeError: If a keyword is unknown.
    """
    loaded = Options(**options)
    parts = [Part(llava_source(file, folder_of(file, image_folder), loaded)) for file in paths_of(path)]
    return build(parts, loaded)
