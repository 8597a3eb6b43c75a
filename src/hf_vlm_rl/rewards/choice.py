"""Choices: of a list of names, yes or no, the letters of options."""

import difflib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import regex

from .base import AnswerReward
from .columns import as_text, as_texts, listed
from .completions import NEGATION, asserted, words


@dataclass(frozen=True)
class ChoiceReward(AnswerReward):
    """1 if the answer names the right one of a list of choices, and no other.

    Names are found as whole words anywhere in the answer, whatever their case, accents, apostrophes and
    punctuation; where names overlap ("Coca-Cola", "Coca-Cola Zero") the longest counts. A name up to a denial
    does not count ("not Gap", see `asserted`), unless the choice itself says "no" or "not".

    Columns: `answer`: a choice or an alias.
    Range: 0 or 1.
    Malformed: 0, for an answer that names no choice or several, or denies the one that it names.

    Args:
        choices: The names, two or more.
        aliases: Other names: choice -> its aliases.

    Raises:
        ValueError: If a name has no letters or digits, two choices share one, or an alias is of no choice.
    """

    choices: Sequence[str]
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # First word -> all words of a name -> its choice, and whether the name itself denies something.
    _names: dict[tuple, dict[tuple, tuple[str, bool]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
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
        if known.setdefault(key, (choice, bool(NEGATION.search(name))))[0] != choice:
            raise ValueError(
                f"{name!r} names both {known[key][0]!r} and {choice!r}: case, accents and punctuation do not "
                "count. Drop one, or make one an alias of the other."
            )

    def target(self, value: Any) -> str:
        """The right choice."""
        key = tuple(words(as_text(value)))
        choice, _ = self._names.get(key[:1], {}).get(key, (None, False))
        if choice is None:
            near = difflib.get_close_matches(str(value), list(self.choices), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"one of the {len(self.choices)} choices or their aliases{hint}")
        return choice

    def parse_answer(self, answer: str) -> str | None:
        """The one choice that the answer names, as in `choices`."""
        named = self._named(answer)
        if len(named) != 1:
            return None
        ((choice, denies),) = named.items()
        return choice if denies or choice in self._named(asserted(answer)) else None

    def _named(self, text: str) -> dict[str, bool]:
        """The choices that a text names, and whether one of their names in it denies something."""
        spoken, position = tuple(words(text)), 0
        named: dict[str, bool] = {}
        while position < len(spoken):
            names = self._names.get(spoken[position : position + 1], {})
            fits = [name for name in names if spoken[position : position + len(name)] == name]
            longest = max(fits, key=len, default=None)
            if longest is not None:
                choice, denies = names[longest]
                named[choice] = named.get(choice, False) or denies
            position += len(longest or (1,))
        return named


_YES_NO = {"yes": True, "true": True, "no": False, "false": False}
_VERDICT = regex.compile(
    r"(?i)(?<![\p{L}\p{M}])(yes|true|no|false)(?![\p{L}\p{M}])([^\S\n]*+(?![\p{L}\p{N}]))?+"
)


@dataclass(frozen=True, kw_only=True)
class YesNoReward(AnswerReward):
    """1 if the answer says yes or no, rightly.

    "yes" counts anywhere; "no", "true" and "false" count where no word follows: "No, it is red" and not "no
    doubt". All of these words must agree. A denial ("not", "never", "wrong") may stand only behind "no" and
    "false".

    Columns: `answer`: a bool, "yes" or "no" (also "true", "false").
    Range: 0 or 1.
    Malformed: 0, for any other answer.
    """

    def target(self, value: Any) -> bool:
        """The right answer."""
        value = listed(value)
        if isinstance(value, bool):
            return value
        if not isinstance(value, str) or value.strip().lower() not in _YES_NO:
            raise ValueError('a bool, "yes" or "no"')
        return _YES_NO[value.strip().lower()]

    def parse_answer(self, answer: str) -> bool | None:
        """What the answer says."""
        verdicts = list(_VERDICT.finditer(answer))
        meanings = {_YES_NO[verdict[1].lower()] for verdict in verdicts}
        if len(meanings) != 1 or not any(v[2] is not None or v[1].lower() == "yes" for v in verdicts):
            return None
        (meaning,) = meanings
        denied = NEGATION.search(answer, endpos=None if meaning else verdicts[0].start())
        return None if denied else meaning


# A letter of a script that puts spaces between words: "B" stands alone in "选B" and not in "AB".
_SPACED = r"[^\W\u2e80-\ud7ff\uf900-\ufaff]"
_END = rf"(?!{_SPACED}|['\u2019])"
# A letter that is marked as an option: (B), **B**, \boxed{B}, $B$, B), B., B:, "b. a cat", "option b",
# "answer is B", "Answer: b", "选B", "答案是B". After "answer", "a" and "I" before a word are words.
# Each alternative is of bounded length: linear time.
_MARKED = regex.compile(
    rf"(?<!{_SPACED})\(([A-Za-z])\)|\*\*([A-Za-z])\*\*|\\boxed\{{([A-Za-z])\}}|\$([A-Z])\$"
    rf"|(?<!{_SPACED})(?<!\.)([A-Z])(?:\)|[.:](?=\s|$))|\A([a-z])[.:)](?=\s)"
    rf"|(?i:\b(?:option|choice):?)\s([A-Za-z]){_END}"
    rf"|(?i:\banswer(?:\sis)?:?)\s([B-HJ-Zb-hj-z]|A|[aI](?!\s\w)){_END}"
    rf"|(?<!\u4e0d)(?:\u9009\u9879?|\u7b54\u6848[\u662f\u4e3a]?):?\s?([A-Za-z]){_END}"
)
# An answer that begins with an option; what follows is its text.
_OPTION = regex.compile(r"\(?[A-Za-z][.:)](?=\s)")
# "A" and "I" before a word are words themselves, also before a name ("A Nike shoe").
_WORD = r"[^\S\n](?!(?i:or|and)\b)(?:[a-z]|\p{Latin}{2})"
_ALONE = regex.compile(rf"(?<!{_SPACED})([B-HJ-Z]|[AI](?!{_WORD})){_END}")


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceReward(AnswerReward):
    r"""1 if the answer picks the right letter, and no other.

    A letter counts where it is the whole answer or marked, as in `(B)`, `B.`, `**B**`, `\boxed{B}`,
    "option b", "answer is B", "答案是B"; else where it stands alone. With `options`, the text of an option
    stands for its letter. Letters up to a denial do not count ("B (not A)", see `asserted`), but for a letter
    that the answer begins with, marked as in "B. Not a cat": the text of its option follows.

    Columns: `answer`: a letter from A to Z; if named, `options`: the row's list of options.
    Range: 0 or 1.
    Malformed: 0, for an answer with no letter or several.

    Args:
        options: The column with the texts of the options, if answers may be given as text.
    """

    options: str | None = None

    def target(self, value: Any) -> str:
        """The right letter."""
        letter = unicodedata.normalize("NFKC", value).strip(" ().").upper() if isinstance(value, str) else ""
        if len(letter) != 1 or not "A" <= letter <= "Z":
            raise ValueError("the letter of the right option, such as 'B'")
        return letter

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """The right letter and the texts of the options per row."""
        letters = super().targets(columns, rows)
        options: list = [()] * rows
        if self.options is not None:
            options = self.read(columns, self.options, rows, as_texts, letters)
        return [None if None in pair else pair for pair in zip(letters, options, strict=True)]

    def parse_answer(self, answer: str) -> tuple[str | None, bool, tuple[str, ...]] | None:
        """The one letter that the answer picks, or None, whether it is marked, and the answer's words."""
        letter, marked = _letter(answer)
        spoken = tuple(words(answer))
        if letter is None and (self.options is None or not spoken):
            return None
        return letter, marked, spoken

    def score(self, parsed: tuple, target: tuple) -> float:
        """1 or 0."""
        letter, marked, spoken = parsed
        right, options = target
        if not marked:  # an option's own text, such as "Vitamin A", comes before a letter in it
            fits = [index for index, option in enumerate(options) if tuple(words(option)) == spoken]
            letter = chr(ord("A") + fits[0]) if len(fits) == 1 else letter
        return float(letter == right)


def _letter(answer: str) -> tuple[str | None, bool]:
    """The one letter that an answer picks, or None, and whether it is marked or the whole answer."""
    answer = unicodedata.normalize("NFKC", answer).strip()  # full-width letters and punctuation are as others
    bare = answer.strip(" \t\n().:*$\u3002")
    if len(bare) == 1 and bare.isascii() and bare.isalpha():
        return bare.upper(), True
    option = _OPTION.match(answer)
    text = (option[0] if option else "") + asserted(answer[option.end() if option else 0 :])
    letters = {letter.upper() for match in _MARKED.findall(text) for letter in match if letter}
    marked = bool(letters)
    letters = letters or set(_ALONE.findall(text))
    return letters.pop() if len(letters) == 1 else None, marked


yes_no_reward = YesNoReward()
multiple_choice_reward = MultipleChoiceReward()
