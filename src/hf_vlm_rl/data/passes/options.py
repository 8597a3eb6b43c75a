"""The keywords that the loaders of files share, and the rows that `on_error` leaves out."""

import json
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ...errors import DataError

logger = logging.getLogger(__name__)

OnError = Literal["raise", "skip"] | Callable[[DataError], None]
KEPT = 5  # reasons


class LoadOptions(TypedDict, total=False):
    """Keywords of `load_llava`, `load_messages`, `load_mixture`, `load_image_folder`; each can be left out.

    Attributes:
        answer: Name of the column for the last answer of the assistant, None where the conversation ends
            with the user; VLM-R1's rewards read "solution". A string, or the number or list of numbers that
            a LLaVA or VLM-R1 file has. None: no such column. Default: "answer".
        completion: Also give the last answer as messages in the column `completion`, for `SFTTrainer`.
            Default: False.
        system: A system message for conversations that have none, and no field `system`. Default: None.
        image_mark: Stands in texts for the images, in order; a line break beside it is part of it. In a row
            without any, the images come first. Default: `<image>`.
        outside_images: Let relative paths of images lead out of the image folder (`../`), which is an error
            otherwise; absolute paths always may. Default: False.
        drop: Names of fields to leave out. Default: none.
        strings: Names of fields to keep as text: strings as they are, other values as JSON. Default: none.
        on_error: "raise" at the first bad row; "skip" bad rows, and log how many and why; or a callable
            that gets each bad row's DataError, the row being skipped. Default: "raise".
        check_images: Look whether each image file is there; URLs are not looked at. Default: True.
        verify_images: Decode each image file, too, with eight threads, which finds those that were cut off.
            Default: False.
    """

    answer: str | None
    completion: bool
    system: str | None
    image_mark: str
    outside_images: bool
    drop: Sequence[str]
    strings: Sequence[str]
    on_error: OnError
    check_images: bool
    verify_images: bool


@dataclass(frozen=True)
class Options:
    """The fields of `LoadOptions` with their defaults; what rows depend on is in the `repr`.

    Raises:
        ValueError: If `drop` or `strings` is no list of names, or `on_error` is none of its three forms.
    """

    answer: str | None = "answer"
    completion: bool = False
    system: str | None = None
    image_mark: str = "<image>"
    outside_images: bool = False
    drop: Sequence[str] = ()
    strings: Sequence[str] = ()
    on_error: OnError = field(default="raise", repr=False)
    check_images: bool = True
    verify_images: bool = False

    def __new__(cls, **options: Any) -> "Options":
        """Options, or a TypeError that knows no `__init__`: users call a loader."""
        for name in sorted(options.keys() - cls.__annotations__):
            known = f"image_folder, question, split, {', '.join(cls.__annotations__)}"
            raise TypeError(f"got an unexpected keyword argument {name!r}; loaders take some of {known}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_on_error(self.on_error)
        if self.answer in ("prompt", "images") or (self.completion and self.answer == "completion"):
            raise ValueError(f"Got answer={self.answer!r}, which is another column's name. Expected its own.")
        object.__setattr__(self, "drop", column_names(self.drop, "drop"))
        object.__setattr__(self, "strings", column_names(self.strings, "strings"))

    def extras(
        self, record: Mapping[str, Any], read: Container[str], columns: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The fields of a record that stay columns: all but those that were `read` or are dropped.

        Raises:
            DataError: If another field has the name of a column that the reader makes.
        """
        extras = {name: value for name, value in record.items() if name not in read and name not in self.drop}
        for name in extras.keys() & columns.keys():
            another_name = "pass answer='another name' or " if name == self.answer else ""
            raise DataError(
                f"the row has a field {name!r} of its own, which is the name of a column that is made of "
                f"others; {another_name}drop=[{name!r}]"
            )
        return {name: self.as_asked(name, value) for name, value in extras.items()}

    def as_asked(self, name: str, value: Any) -> Any:
        """A field's value, as JSON if `strings` names the field and it is no string."""
        if name not in self.strings or value is None or isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, default=str)  # a date of parquet, say


def column_names(names: Any, option: str) -> tuple[str, ...]:
    """A list of column names, as it was passed for an option.

    Raises:
        ValueError: If it is a single string or holds something else.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"Got {option}={names!r}. Expected a list of column names.")
    return tuple(names)


@dataclass
class Skipped:
    """Counts the rows that are left out, and keeps the messages of the first five."""

    on_error: OnError
    number: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, error: DataError) -> None:
        """Count a row that is left out; a callable gets the error.

        Raises:
            DataError: The error itself, if `on_error` is "raise".
        """
        if self.on_error == "raise":
            raise error from None
        self.number += 1
        if len(self.reasons) < KEPT:
            self.reasons.append(str(error))
        if callable(self.on_error):
            self.on_error(error)

    def tell(self, rows: int) -> None:
        """Log a warning if rows were left out; `rows` are left.

        Raises:
            DataError: If none is left; says why they were left out.
        """
        reasons = "".join(f"\n  {reason}" for reason in self.reasons)
        if not rows:
            raise DataError(f"No row is left: all {self.number} were skipped.{reasons}")
        if self.number:
            more = self.number - len(self.reasons)
            reasons += f"\n  and {more} more" if more else ""
            logger.warning("%d of %d rows were skipped:%s", self.number, rows + self.number, reasons)


def check_on_error(on_error: OnError) -> None:
    """Refuse anything but the three.

    Raises:
        ValueError: If it is none of them.
    """
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise ValueError(f'Got on_error={on_error!r}. Expected "raise", "skip" or a callable.')
