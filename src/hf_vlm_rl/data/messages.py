"""Rows of messages: `messages`, or `prompt` with `completion` or with `chosen` and `rejected`."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack

from datasets import Dataset

from ..errors import DataError
from .conversations import ConversationReader, Turns
from .passes.column_types import Kind
from .passes.first_pass import Part
from .passes.json_file import BrokenList
from .passes.options import LoadOptions, Options
from .passes.second_pass import build
from .passes.sources import Source, file_source, folder_of, paths_of

PAIR = ("chosen", "rejected")
NAMES = {"question": "prompt", "file_name": "image"}  # of the form "question"
READ = ("messages", "prompt", "completion", *PAIR, "image", "images", "system", "video", "videos")


@dataclass(frozen=True)
class MessagesReader(ConversationReader):
    """Rows of records with messages.

    `form` is "messages", "prompt", "question" (a prompt by another name), "completion" (a prompt and a
    completion) or "preference" (a pair).
    """

    form: str

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """The columns of the form."""
        if self.form == "messages":
            return super().kinds
        answers = {"prompt": (), "question": (), "completion": ("completion",), "preference": PAIR}[self.form]
        return {"prompt": "messages", "images": "images"} | dict.fromkeys(answers, "messages")

    def row(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns of a record, as `Reader.row` describes them."""
        form = form_of(record)
        if form != self.form:
            raise DataError(
                f"the row is of the form {form!r} (it has {sorted(record)}), but the file's first row is of "
                f"the form {self.form!r}; expected one form per file"
            )
        if form == "question":
            record = {NAMES.get(name, name): value for name, value in record.items()}
        extras = self.options.extras(record, READ, self.kinds)
        images = self.images(record)
        if self.form == "messages":
            return self.split(self.started(record["messages"], record, "messages"), images), extras
        prompt, answers = self._prompt(record)
        columns = {"prompt": prompt.messages, "images": prompt.place(images)}
        return columns | {name: self.answered(value, name) for name, value in answers.items()}, extras

    def _prompt(self, record: Mapping[str, Any]) -> tuple[Turns, dict[str, Any]]:
        answers = {name: record[name] for name in ("completion", *PAIR) if record.get(name) is not None}
        messages = record.get("prompt")
        if messages is None:  # both conversations begin with it
            chosen, rejected = record["chosen"], record["rejected"]
            if not isinstance(chosen, list) or not isinstance(rejected, list):
                raise DataError("'chosen' and 'rejected' without 'prompt' are no conversations; add a prompt")
            same = 0
            while same < min(len(chosen), len(rejected)) - 1 and chosen[same] == rejected[same]:
                same += 1
            messages, answers = chosen[:same], {"chosen": chosen[same:], "rejected": rejected[same:]}
        messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        turns = self.started(messages, record, "prompt")
        if not any(turn["role"] == "user" for turn in turns.messages):
            raise DataError("'prompt' has no turn of a user; expected one")
        return turns, answers


def form_of(record: Any) -> str:
    """What kind of row a record is.

    Raises:
        DataError: If none can be told.
    """
    if not isinstance(record, Mapping):
        raise DataError(f"the row is {record!r:.80}; expected a JSON object")
    fields = {name for name in READ if record.get(name) is not None}
    if "messages" in fields and not fields & {"prompt", "completion", *PAIR}:
        return "messages"
    if fields >= set(PAIR) and not fields & {"messages", "completion"}:
        return "preference"
    if "prompt" in fields and not fields & {"messages", *PAIR}:
        return "completion" if "completion" in fields else "prompt"
    if not fields & set(READ[:5]) and record.get("question") is not None:
        return "question"
    shown = sorted(map(str, record))
    raise DataError(
        f"the row has {shown}; expected 'messages', or 'prompt' or 'question', or 'prompt' and "
        "'completion', or 'chosen' and 'rejected' (with 'prompt', unless both begin with it)"
        + ("; load_any reads rows of 'conversations', too" if "conversations" in shown else "")
        + ("; ms-swift's 'query' is 'prompt', 'response' is 'completion'" if "query" in shown else "")
    )


def messages_source(path: str | os.PathLike, folder: str, options: Options) -> Source:
    """A file of messages; its first row says of which form.

    Raises:
        DataError: If the file cannot be used, or no row tells its form.
    """
    return of_first_form(file_source(path, MessagesReader(folder, options, "messages")), folder, options)


def of_first_form(
    unread: Source, folder: str, options: Options, others: Callable[[Any], bool] = lambda record: False
) -> Source:
    """A source whose reader is that of the form of its first usable row.

    With `others`, a source is returned as it is if its first usable row is one of them. If bad rows are
    skipped and no row tells its form, any reader will do: each row is told why when it is read.

    Raises:
        DataError: If no row tells its form, and bad rows are not skipped or there is none.
    """
    first_error: DataError | None = None
    try:
        for record in unread.records():
            try:
                if isinstance(record.value, DataError):
                    raise record.value
                if others(record.value):
                    return unread
                return replace(unread, reader=MessagesReader(folder, options, form_of(record.value)))
            except DataError as error:  # counted as bad when the rows are read
                first_error = first_error or DataError(f"{record.place}: {error}")
    except BrokenList as error:  # as is this, which ends the list
        first_error = first_error or error
    if first_error and options.on_error != "raise":
        return replace(unread, reader=MessagesReader(folder, options, "messages"))
    raise first_error or DataError(f"{unread.name} has no rows. Expected at least one.")


def load_messages(
    path: str | os.PathLike | Sequence[str | os.PathLike],
    image_folder: str | os.PathLike | None = None,
    **options: Unpack[LoadOptions],
) -> Dataset:
    """Read rows of messages: for prompts, for prompts and completions, and preference pairs.

    A row has `messages`, or `prompt`, or `prompt` and `completion`, or `prompt`, `chosen` and `rejected` (a
    pair without `prompt` begins with it on both sides). These are lists of `{"role", "content"}`, or strings
    but for `messages`; a content is a string with image marks, or a list of blocks. Images stand in
    `{"type": "image", "image" | "path" | "url": ...}` or `image_url` blocks, or in `images` or `image`, for
    the marks and the blocks without an image of their own, in order. A field `system`, as LLaMA-Factory
    writes it, is the conversation's system message.

    Args:
        path: A file as `load_any` reads, or several, whose rows follow each other.
        image_folder: Paths of images are relative to it. Default: each file's own folder.
        **options: `answer`, `system`, `on_error` and others: `LoadOptions` explains them all.
            `answer` and `completion` are for rows of `messages`.

    Returns:
        Rows with the columns `prompt` and `images`; the answer and `completion` of `messages`, or what stood
        beside `prompt` (`completion`, or `chosen` and `rejected`, as messages); and every other field.

    Raises:
        DataError: If a file cannot be used, or a row of it; names file and line (index in a JSON list).
        TypeError: If a keyword is unknown.
    """
    loaded = Options(**options)
    parts = [Part(messages_source(file, folder_of(file, image_folder), loaded)) for file in paths_of(path)]
    return build(parts, loaded)
