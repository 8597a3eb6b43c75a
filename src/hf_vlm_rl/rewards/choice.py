"""Choice from a list of names, and yes or no."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .base import RowReward
from .columns import as_text
from .completions import extract_answer, words


@dataclass(frozen=True)
class ChoiceReward(RowReward):
    """1 if the answer names the right one of a list of choices, and no other.

    Names are found as whole words anywhere in the answer, whatever their case, accents, apostrophes and
    punctuation; where names overlap ("Coca-Cola", "Coca-Cola Zero") the longest counts.

    Columns: `answer`: a choice or an alias.
    Range: 0 or 1.
    Malformed: 0, for an answer that names no choice or several.

    Args:
        choices: The names, two or more.
        aliases: Other names: choice -> its aliases.
        column: The column with the right choice.
        tag: Where the answer stands, see `extract_answer`; None for the whole completion.

    Raises:
        ValueError: If a name has no letters or digits, two choices share one, or an alias is of no choice.
    """

    choices: Sequence[str]
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    column: str = "answer"
    tag: str | None = "answer"
    # First word -> all words of a name -> its choice.
    _names: dict[tuple, dict[tuple, str]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self):
        choices = [self.choices] if isinstance(self.choices, str) else list(self.choices)
        if len(choices) < 2:
            raise ValueError(f"Got the choices {choices!r}. Expected two or more names.")
        if unknown := sorted(set(self.aliases) - set(choices)):
            raise ValueError(f"Got aliases of {unknown}, which are no choices. Spell them as in `choices`.")
        for choice in choices:
            other = self.aliases.get(choice, ())
            for name in (choice, *([other] if isinstance(other, str) else other)):
                self._add(name, choice)

    def _add(self, name: str, choice: str) -> None:
        key = tuple(words(name))
        if not key:
            raise ValueError(f"The name {name!r} has no letters or digits. Give the choice another name.")
        known = self._names.setdefault(key[:1], {})
        if known.setdefault(key, choice) != choice:
            raise ValueError(
                f"{name!r} names both {known[key]!r} and {choice!r}: case, accents and punctuation do not "
                "count. Drop one, or make one an alias of the other."
            )

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """The right choice per row."""
        return self.read(columns, self.column, rows, self._choice)

    def _choice(self, value: Any) -> str:
        key = tuple(words(as_text(value)))
        choice = self._names.get(key[:1], {}).get(key)
        if choice is None:
            near = difflib.get_close_matches(str(value), list(self.choices), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"one of the {len(self.choices)} choices or their aliases{hint}")
        return choice

    def parse(self, text: str) -> str | None:
        """The one choice that the answer names, as in `choices`."""
        found = self._find(extract_answer(text, self.tag))
        return found.pop() if len(found) == 1 else None

    def _find(self, text: str) -> set[str]:
        said, found, position = tuple(words(text)), set(), 0
        while position < len(said):
            names = self._names.get(said[position : position + 1], {})
            fits = [name for name in names if said[position : position + len(name)] == name]
            longest = max(fits, key=len, default=None)
            if longest is not None:
                found.add(names[longest])
            position += len(longest or (1,))
        return found

    def score(self, parsed: str, target: str) -> float:
        """1 or 0."""
        return float(parsed == target)


_YES_NO = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True, kw_only=True)
class YesNoReward(RowReward):
    """1 if the answer says yes or no, rightly.

    Columns: `answer`: a bool, "yes" or "no" (also "true", "false").
    Range: 0 or 1.
    Malformed: 0, for an answer with neither word, or with both.

    Args:
        column: The column with the right answer.
        tag: Where the answer stands, see `extract_answer`; None for the whole completion.
    """

    column: str = "answer"
    tag: str | None = "answer"

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """The right answer per row, as a bool."""
        return self.read(columns, self.column, rows, _as_yes_no)

    def parse(self, text: str) -> bool | None:
        """What the answer says."""
        said = {_YES_NO[word] for word in words(extract_answer(text, self.tag)) if word in _YES_NO}
        return said.pop() if len(said) == 1 else None

    def score(self, parsed: bool, target: bool) -> float:
        """1 or 0."""
        return float(parsed == target)


def _as_yes_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.strip().lower() not in _YES_NO:
        raise ValueError('a bool, "yes" or "no"')
    return _YES_NO[value.strip().lower()]


yes_no_reward = YesNoReward()
