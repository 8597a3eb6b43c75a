"""The types of columns, from the values of every row.

`pyarrow`'s own inference was measured and changes values: `2**60` beside `2.5` becomes a rounded double, and
`[1, "a"]` inside a list is typed int64.
"""

from collections.abc import Mapping
from typing import Any

from datasets import Features, List, Value

from ...errors import DataError
from ..checked_image import CheckedImage

# A kind is a string, ("list", kind) or ("struct", {name: kind}).
Kind = Any
EXACT = 2**53  # integers up to here are floats, too
STORED = 2**63
DEEPEST = 32  # levels of lists and objects; Arrow's files take 64

MESSAGES = List(
    {
        "role": Value("string"),
        "content": List({"type": Value("string"), "text": Value("string")}),
    }
)
# Without a mode: the native image processor converts to RGB, and lays transparent images on white.
IMAGES = List(CheckedImage())
_SCALARS = {
    "null": "null",
    "unanswered": "string",
    "bool": "bool",
    "small integer": "int64",
    "integer": "int64",
    "float": "float64",
    "string": "string",
}
# Nothing yet: any value makes it its own kind. An answer that no row has is a column of strings.
EMPTY = ("unanswered", "null")
_WHOLE = {"messages": MESSAGES, "images": IMAGES}


class Conflict(Exception):
    """Two values that no one type holds; the message says what they are."""


def kind_of(value: Any) -> Kind:
    """The kind of a JSON value.

    Raises:
        Conflict: If its parts differ, or an integer has more than 64 bits.
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if not -STORED <= value < STORED:
            raise Conflict(f"an integer of {value.bit_length()} bits (64 at most)")
        return "small integer" if -EXACT <= value <= EXACT else "integer"
    if isinstance(value, float):
        return "float"
    if isinstance(value, list):
        types = set(map(type, value))
        if types <= {float} or types <= {str}:  # long lists, such as polygons
            return ("list", {float: "float", str: "string"}[types.pop()] if types else "null")
        kind = "null"
        for item in value:
            other = kind_of(item)
            kind = kind if kind == other else join(kind, other)
        return ("list", kind)
    if isinstance(value, Mapping):
        return ("struct", {str(name): kind_of(field) for name, field in value.items()})
    raise Conflict(f"a {type(value).__name__}")


def join(first: Kind, second: Kind) -> Kind:
    """The narrowest kind of values of both: integers become floats where none is rounded by that.

    Raises:
        Conflict: If there is none.
    """
    if first == second or second == "null" or (second == "unanswered" and first != "null"):
        return first
    if first in EMPTY:
        return second
    names = {first, second} if isinstance(first, str) and isinstance(second, str) else set()
    if names == {"small integer", "integer"}:
        return "integer"
    if names == {"small integer", "float"}:
        return "float"
    if first[0] == second[0] == "list":
        return ("list", join(first[1], second[1]))
    if first[0] == second[0] == "struct":
        fields = dict(first[1])
        for name, kind in second[1].items():
            fields[name] = join(fields.get(name, "null"), kind)
        return ("struct", fields)
    raise Conflict(f"{_name(second)} beside {_name(first)}")


def feature(kind: Kind) -> Any:
    """What `datasets` calls a kind."""
    if isinstance(kind, str):
        return _WHOLE.get(kind) or Value(_SCALARS[kind])
    if kind[0] == "list":
        return List(feature(kind[1]))
    return {name: feature(field) for name, field in kind[1].items()}


def _check_depth(kind: Kind, level: int = 0) -> None:
    if level > DEEPEST:
        raise Conflict(f"lists or objects inside each other more than {DEEPEST} times")
    if kind[0] == "list":
        _check_depth(kind[1], level + 1)
    elif kind[0] == "struct":
        for field in kind[1].values():
            _check_depth(field, level + 1)


class Columns:
    """The columns of all rows so far.

    A column that some rows lack is None there; one of a dict's entries, too.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        self.first: dict[str, str] = {}

    def declare(self, kinds: Mapping[str, Kind], place: str) -> None:
        """Add columns whose kinds are known, or widen them.

        Raises:
            DataError: If a column is there with a kind that does not fit; then nothing is changed.
        """
        new = {}
        for name, kind in kinds.items():
            try:
                new[name] = join(self.kinds.get(name, "null"), kind)
            except Conflict as conflict:
                raise DataError(
                    f"column {name!r} holds {conflict}, as in {self.first[name]}; {_remedy(name)}"
                ) from None
        for name, kind in new.items():
            if self.kinds.get(name, "null") in EMPTY:
                self.first[name] = place
            self.kinds[name] = kind

    def add(self, values: Mapping[str, Any], place: str) -> None:
        """Widen the columns by one row, which stands at `place`.

        Raises:
            DataError: If a value does not fit, naming both places; then nothing is changed.
        """
        kinds = {}
        for name, value in values.items():
            try:
                kind = kind_of(value)
                if kind != self.kinds.get(name):
                    _check_depth(kind)
                    kinds[name] = kind
            except Conflict as conflict:
                raise DataError(f"column {name!r} holds {conflict}; {_remedy(name)}") from None
        self.declare(kinds, place)

    def features(self) -> Features:
        """The features of the dataset."""
        return Features({name: feature(kind) for name, kind in self.kinds.items()})


def _remedy(name: str) -> str:
    return f"write one type, or pass strings=[{name!r}] to keep all its values as text, or drop=[{name!r}]"


def _name(kind: Kind) -> str:
    if isinstance(kind, str):
        return {"messages": "messages", "images": "images", "integer": "a large integer"}.get(
            kind, f"a {kind}".replace("a integer", "an integer")
        )
    return {"list": "a list", "struct": "an object"}[kind[0]]
