"""Numbers in answers: measurements and counts."""

import math
from dataclasses import dataclass
from typing import Any

import regex

from .base import AnswerReward
from .columns import as_number
from .completions import NEGATION, asserted
from .number_words import CHANGING_BEFORE, CHANGING_BEHIND
from .written_numbers import Quantity, read_numbers

_TO_NINETEEN = """zero one two three four five six seven eight nine ten
eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
# Words that make another number of the ones beside them. Alone they are no numbers.
_JOINING = "half quarter point plus minus negative times or to"
_LARGE = "thousand million billion trillion dozen"


def _name(number: int) -> str:
    """A number below 1,000 in words, as "two hundred twenty one"."""
    if number < 20:
        return _TO_NINETEEN.split()[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        name, rest = _TENS.split()[tens - 2], ones
    else:
        hundreds, rest = divmod(number, 100)
        name = f"{_name(hundreds)} hundred"
    return f"{name} {_name(rest)}" if rest else name


_COUNTS = {_name(number): number for number in range(1_000)}
_WORDS = "|".join(f"{_TO_NINETEEN} {_TENS} hundred {_LARGE} {_JOINING}".split())
_IN_WORDS = regex.compile(
    rf"(?i)(?<![\p{{L}}-])(?:{_WORDS})(?:(?:[ -]|,? and )(?:a )?(?:{_WORDS})(?!\p{{L}}))*+(?!-?\p{{L}})"
)
_BEFORE = regex.compile(rf"(?i)(?<!\p{{L}})(?:{CHANGING_BEFORE})\s+$")
_BEHIND = regex.compile(rf"(?i)\s*%|\s+(?:percent|per\s+cent|{CHANGING_BEHIND})(?!\p{{L}})")
_NONE = regex.compile(r"(?i)(?:^|\s)none\W*$")


@dataclass(frozen=True, kw_only=True)
class NumericReward(AnswerReward):
    """1 if the last number of the answer is the right one, within a tolerance.

    `written_numbers` says which numbers are read; a last one outside its grammar makes the answer malformed.
    A percent sign on one side only is read both ways: "12 %" is right for 12 and for 0.12. Of other units,
    two that differ are wrong; one may be missing, unless it changes the value, as in "5k". Text up to a
    denial is not read ("not 5"), see `asserted`.

    Columns: `answer`: a number, or a text with one, such as "12.5 km".
    Range: 0 or 1.
    Malformed: 0, for an answer whose last number is outside the grammar, or without one.

    Args:
        rel_tol: Tolerance relative to the right number; 0.05 is the field's for charts.
        abs_tol: Absolute tolerance.
        decimal_comma: In answers and in strings of the column, commas are decimal and points stand between
            thousands, as in German or Spanish.
    """

    rel_tol: float = 1e-6
    abs_tol: float = 1e-9
    decimal_comma: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.rel_tol < math.inf and 0 <= self.abs_tol < math.inf):
            raise ValueError(f"Got the tolerances {self.rel_tol} and {self.abs_tol}. Expected 0 or more.")

    def target(self, value: Any) -> Quantity:
        """The right quantity."""
        if not isinstance(value, str):
            return Quantity(as_number(value))
        numbers = read_numbers(value, self.decimal_comma)
        if len(numbers) != 1 or numbers[0] is None:
            raise ValueError("a number, or a text with one number, such as '12.5 km'")
        return numbers[0]

    def parse_answer(self, answer: str) -> Quantity | None:
        """The last number of the answer."""
        numbers = read_numbers(asserted(answer), self.decimal_comma)
        return numbers[-1] if numbers else None

    def score(self, parsed: Quantity, target: Quantity) -> float:
        """1 or 0."""
        values = [parsed.value]
        if parsed.unit != target.unit:
            if (parsed.unit and target.unit) or parsed.scales or target.scales:
                return 0.0
            if "%" in (parsed.unit, target.unit):
                values.append(parsed.value / 100 if parsed.unit else parsed.value * 100)
        return float(any(self._close(value, target.value) for value in values))

    def _close(self, value: float, target: float) -> bool:
        return abs(value - target) <= max(self.abs_tol, self.rel_tol * abs(target))


@dataclass(frozen=True, kw_only=True)
class CountReward(AnswerReward):
    """How well the last number of the answer counts.

    Numbers are read as by `NumericReward`, and in English words below one thousand. An answer whose last
    number in digits and last number in words differ is malformed. "none" at the end of an answer without
    numbers is 0.

    Columns: `answer`: a whole number, 0 or more.
    Range: 0 or 1; with `partial`, [0, 1]: 1 - |error| / max(right, 1), at least 0.
    Malformed: 0, for an answer whose last number is outside the grammar or no whole number, or without one.

    Args:
        partial: Credit for near misses.
    """

    partial: bool = False

    def target(self, value: Any) -> int:
        """The right number."""
        number = float(value) if isinstance(value, str) and value.strip().isdecimal() else as_number(value)
        if number < 0 or not number.is_integer():
            raise ValueError("a whole number, 0 or more")
        return int(number)

    def parse_answer(self, answer: str) -> int | None:
        """The last whole number of the answer, in digits or words."""
        if (none := _NONE.search(answer)) and not NEGATION.search(answer, 0, none.start()):
            return None if _counts(answer) else 0
        counts = _counts(asserted(answer))
        return counts[-1] if counts else None

    def score(self, parsed: int, target: int) -> float:
        """1 or 0, or between."""
        if not self.partial:
            return float(parsed == target)
        return max(0.0, 1 - abs(parsed - target) / max(target, 1))


def _counts(text: str) -> list[int | None]:
    """The numbers in digits, else those in words, in order; None for malformed ones."""
    digits = [
        int(number.value) if number and number.value.is_integer() and _is_count(number) else None
        for number in read_numbers(text)
    ]
    spoken = [
        None if _is_changed(text, *match.span()) else _COUNTS.get(name)
        for match in _IN_WORDS.finditer(text)
        if not set((name := _plain(match[0])).split()) <= set(_JOINING.split())
    ]
    if digits and spoken and digits[-1:] != spoken[-1:]:
        return [None]
    return digits or spoken


def _is_count(number: Quantity) -> bool:
    return number.value >= 0 and number.unit != "%" and not number.scales


def _is_changed(text: str, start: int, end: int) -> bool:
    """Whether words beside a number make another one of it, as of numbers in digits: "more than three"."""
    return bool(_BEFORE.search(text, max(0, start - 40), start) or _BEHIND.match(text, end))


def _plain(name: str) -> str:
    return name.lower().replace("-", " ").replace(",", "").replace(" and ", " ")


numeric_reward = NumericReward()
count_reward = CountReward()
