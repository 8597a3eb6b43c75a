"""Datasets of others, brought into the columns that trainers take."""

import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import ClassLabel, Dataset, Features, IterableDataset, Value

from ..errors import DataError
from ..processing.images.reference import as_list
from .conversations import ConversationReader
from .passes.column_types import IMAGES, MESSAGES
from .passes.options import OnError, Options, Skipped, check_on_error, column_names
from .undecoded import undecoded


@dataclass(frozen=True)
class Mapped:
    """Makes a row of another dataset's row.

    `prompt` and `answer` are columns or templates, `answers` columns by the name that they get. `classes` are
    the names of what the answer's column numbers; None if it is no `ClassLabel`.
    """

    prompt: str
    images: tuple[str, ...]
    answer: str | None
    answers: Mapping[str, str]
    reader: ConversationReader
    classes: tuple[str, ...] | None

    def __call__(self, row: Mapping[str, Any], index: int) -> dict[str, Any]:
        """The columns that trainers take.

        Raises:
            DataError: If the row does not have what they are made of; names the row.
        """
        try:
            return self.row(row)
        except DataError as error:
            raise DataError(f"row {index}: {error}") from error

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns that trainers take; errors do not name the row."""
        prompt = self._value(self.prompt, row)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        turns = self.reader.started(messages, {}, "prompt")
        if turns.messages[-1]["role"] != "user":
            raise DataError(
                f"the prompt ends with a turn of the {turns.messages[-1]['role']}; expected the user. Put "
                "the answer into a column of its own."
            )
        images = [image for column in self.images for image in as_list(row[column]) if image is not None]
        images = [self.reader.root.stored(image) for image in images]
        columns = {"prompt": turns.messages, "images": turns.place(images)}
        if self.answer is not None:
            answer = self._value(self.answer, row)
            if self.classes is not None and answer is not None:
                answer = self.classes[answer] if answer >= 0 else None  # -1: not labelled
            columns["answer"] = answer
        answered = self.reader.answered
        return columns | {name: answered(row[column], name) for name, column in self.answers.items()}

    def _value(self, source: str, row: Mapping[str, Any]) -> Any:
        if source in row:
            return row[source]
        if any(row.get(name) is None for name in template_fields(source)):
            return None
        try:
            return source.format_map(row)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise DataError(f"the template {source!r} cannot be filled: {error}") from error


def template_fields(source: str) -> list[str]:
    """The columns that a template reads: of `"{question}"` and `"{options[0]}"`, question and options."""
    fields = [field for _, field, _, _ in string.Formatter().parse(source) if field is not None]
    return [re.split(r"[.\[]", field)[0] for field in fields]


def from_dataset(
    dataset: Dataset | IterableDataset,
    *,
    prompt: str,
    images: str | Sequence[str] | None = None,
    answer: str | None = None,
    completion: str | None = None,
    chosen: str | None = None,
    rejected: str | None = None,
    system: str | None = None,
    keep: Sequence[str] | None = None,
    image_folder: str | os.PathLike | None = None,
    image_mark: str = "<image>",
    outside_images: bool = False,
    on_error: OnError = "raise",
    num_proc: int | None = None,
) -> Dataset | IterableDataset:
    """Bring a dataset into the columns that trainers take.

    The rows are written anew to `datasets`' cache, stored images included; no image is decoded. A stream
    stays a stream.

    Args:
        dataset: Rows, or a stream of rows with features.
        prompt: A column with strings or messages (`role`, `content` or `from`, `value`), or a template of
            columns such as `"Question: {question}"`.
        images: A column with images, paths, URLs or lists of these, or several columns, whose images follow
            each other. None: no images.
        answer: A column, whose values stay what they are (names, of a `ClassLabel`), or a template, for the
            column `answer`.
        completion: A column with strings or messages, for the column `completion`.
        chosen: The same for `chosen`.
        rejected: The same for `rejected`.
        system: A system message for rows that have none.
        keep: Columns that stay. Default: all that are not named by the other arguments as columns.
        image_folder: Paths of images are relative to it. Default: the current folder.
        image_mark: Stands for an image in a text; in a row without any, the images come first.
        outside_images: Let relative paths of images lead out of the folder (`../`).
        on_error: "raise" at the first bad row, which for a stream is when it is read; "skip" bad rows, and
            log how many and why (not for streams, which cannot be counted); or a callable that gets each bad
            row's DataError, the row being skipped.
        num_proc: Processes that write the rows; not for streams.

    Returns:
        Rows with the columns `prompt`, `images`, the ones asked for, and those that stay.

    Raises:
        ValueError: If a column is missing, two would have the same name, a stream has no features, or an
            argument is not for streams.
        DataError: If a row cannot be used; names the row.
    """
    check_on_error(on_error)
    streamed = isinstance(dataset, IterableDataset)
    if not streamed and not isinstance(dataset, Dataset):
        raise ValueError(
            f"Got a {type(dataset).__name__}. Expected a Dataset or an IterableDataset: one split."
        )
    if streamed and (on_error == "skip" or num_proc is not None):
        raise ValueError(
            'Got a stream with on_error="skip" or num_proc. Expected neither: a stream is not '
            "read to its end here. Pass a callable as on_error to count bad rows."
        )
    columns = [images] if isinstance(images, str) else list(images or ())
    asked = {"completion": completion, "chosen": chosen, "rejected": rejected}
    answers = {name: column for name, column in asked.items() if column is not None}
    used = {prompt, *columns, *answers.values(), *([] if answer is None else [answer])}
    features = dataset.features
    if features is None:
        raise ValueError("Got a stream without features. Expected dataset.cast(Features(...)) of it.")
    _check(features, prompt, columns, answer, answers)
    labels = features.get(answer)
    mapped = Mapped(
        prompt,
        tuple(columns),
        answer,
        answers,
        ConversationReader(
            os.path.abspath(image_folder or ""),
            Options(system=system, image_mark=image_mark, outside_images=outside_images),
        ),
        tuple(labels.names) if isinstance(labels, ClassLabel) else None,
    )
    new_features = {"prompt": MESSAGES, "images": IMAGES} | dict.fromkeys(answers, MESSAGES)
    if answer is not None:
        made_text = labels is None or isinstance(labels, ClassLabel)
        new_features["answer"] = Value("string") if made_text else labels
    kept = [name for name in features if name not in used] if keep is None else column_names(keep, "keep")
    missing = [name for name in kept if name not in features]
    taken = [name for name in kept if name in new_features]
    if missing or taken:
        raise ValueError(
            f"Got columns to keep that are not there ({missing}) or that are made anew ({taken}). Expected "
            f"some of {[name for name in features if name not in new_features]}; rename_column gives "
            "another name."
        )
    result = Features(new_features | {name: features[name] for name in kept})
    for name in columns:
        dataset = dataset.cast_column(name, undecoded(features[name]))
    if on_error != "raise":
        dataset = _only_good(dataset, mapped, on_error)
    dropped = [name for name in features if name not in kept]
    if streamed:
        # Typed afterwards: `map` with features would leave the images encoded.
        dataset = dataset.map(mapped, with_indices=True, remove_columns=dropped)
        return dataset.select_columns(list(result)).cast(result)
    dataset = dataset.map(
        mapped,
        with_indices=True,
        remove_columns=dropped,
        features=result,
        num_proc=num_proc,
        desc="Mapping columns",
    )
    return dataset.select_columns(list(result))


def _check(
    features: Features, prompt: str, images: list[str], answer: str | None, answers: Mapping[str, str]
) -> None:
    """Refuse columns that are not there."""
    wanted = {name: [column] for name, column in answers.items()} | {"images": images}
    for name, source in (("prompt", prompt), ("answer", answer)):
        if source is not None:
            columns = template_fields(source)
            wanted[name] = [source] if source in features or not columns else columns
    for name, columns in wanted.items():
        missing = [column for column in columns if column not in features]
        if missing:
            raise ValueError(
                f"Got {name} from {missing}, but the dataset has {list(features)}. Expected a column"
                f"{' or a template of columns' if name in ('prompt', 'answer') else ''}."
            )


def _only_good(dataset: Any, mapped: Mapped, on_error: OnError) -> Dataset | IterableDataset:
    """The rows that can be used; the others are counted."""
    skipped = Skipped(on_error)

    def good(row: Mapping[str, Any], index: int) -> bool:
        try:
            mapped(row, index)
        except DataError as error:
            skipped.add(error)
            return False
        return True

    if isinstance(dataset, IterableDataset):
        return dataset.filter(good, with_indices=True)
    indices = [index for index, row in enumerate(dataset) if good(row, index)]
    skipped.tell(len(indices))
    return dataset.select(indices)
