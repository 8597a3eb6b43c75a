"""Numbers in text: measurements and counts."""

import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from .base import AnswerReward
from .columns import as_number

# Possessive quantifiers and the look-behind: each number is tried once, in linear time. What goes on with
# more digits is no number: versions, decimal commas, more than 15 digits. Nor is a factorial: 5! is not 5.
_END = r"(?![.,]?\d|!)"
_DIGITS = rf"(?:\d{{1,3}}(?:,\d{{3}})++|\d{{1,15}}+)(?:\.\d{{1,15}}+)?(?:[eE][-+]?\d{{1,3}}+)?{_END}"
_NUMBER = re.compile(
    rf"(?<![\w.,])(?P<sign>[-+])?(?:[$\u20ac\u00a3\u00a5]\s?)?(?P<value>{_DIGITS}|\.\d{{1,15}}+{_END})"
    rf"(?:\s?/\s?(?P<over>{_DIGITS}))?(?:\s?(?P<unit>%|\u00b0?[^\W\d_]{{1,12}}+))?"
)
_UP_TO_TEN = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_TO_TWENTY = ("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen")
_WORDS = (*_UP_TO_TEN, *_TO_TWENTY, "nineteen", "twenty")
_COUNTS = {word: number for number, word in enumerate(_WORDS)} | {"none": 0}
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Quantity:
    """A number and what stands behind it.

    Attributes:
        value: The number; of "12 %" it is 12.
        unit: The word behind it, or "%", or "".
    """

    value: float
    unit: str = ""


def parse_quantities(text: str) -> list[Quantity]:
    """The numbers in a text, in order.

    Understood are signs, decimals, thousands with commas, exponents, fractions (1/2), currency signs before
    and a unit behind. A comma is never a decimal point; "5!" is a factorial and no number.
    """
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").replace("\u2044", "/")
    quantities = []
    for match in _NUMBER.finditer(text):
        value = float(match["value"].replace(",", ""))
        over = match["over"]
        if over is not None:
            divisor = float(over.replace(",", ""))
            if divisor == 0:
                continue
            value /= divisor
        if math.isfinite(value):
            quantities.append(Quantity(-value if match["sign"] == "-" else value, match["unit"] or ""))
    return quantities


@dataclass(frozen=True, kw_only=True)
class NumericReward(AnswerReward):
    """1 if the last number of the answer is the right one, within a tolerance.

    A percent sign on one side only is read both ways: "12 %" is right for 12 and for 0.12. Of other units,
    two that differ are wrong; a missing one is fine. "5!" is a factorial: no number, and not 5.

    Columns: `answer`: a number, or a text with one, such as "12.5 km".
    Range: 0 or 1.
    Malformed: 0, for an answer without a number.

    Args:
        rel_tol: Tolerance relative to the right number; 0.05 is the field's for charts.
        abs_tol: Absolute tolerance.
    """

    rel_tol: float = 1e-6
    abs_tol: float = 1e-9

    def __post_init__(self) -> None:
        if not (0 <= self.rel_tol < math.inf and 0 <= self.abs_tol < math.inf):
            raise ValueError(f"Got the tolerances {self.rel_tol} and {self.abs_tol}. Expected 0 or more.")

    def target(self, value: Any) -> Quantity:
        """The right quantity."""
        if not isinstance(value, str):
            return Quantity(as_number(value))
        quantities = parse_quantities(value)
        if len(quantities) != 1:
            raise ValueError("a number, or a text with one number, such as '12.5 km'")
        return quantities[0]

    def parse_answer(self, answer: str) -> Quantity | None:
        """The last number of the answer."""
        quantities = parse_quantities(answer)
        return quantities[-1] if quantities else None

    def score(self, parsed: Quantity, target: Quantity) -> float:
        """1 or 0."""
        units = {parsed.unit.lower(), target.unit.lower()} - {""}
        if len(units) > 1:
            return 0.0
        values = [parsed.value]
        if "%" in (parsed.unit, target.unit) and parsed.unit != target.unit:
            values.append(parsed.value / 100 if parsed.unit else parsed.value * 100)
        return float(any(self._close(value, target.value) for value in values))

    def _close(self, value: float, target: float) -> bool:
        return abs(value - target) <= max(self.abs_tol, self.rel_tol * abs(target))


@dataclass(frozen=True, kw_only=True)
class CountReward(AnswerReward):
    """How well the last number of the answer counts.

    Columns: `answer`: a whole number, 0 or more.
    Range: 0 or 1; with `partial`, [0, 1]: 1 - |error| / max(right, 1), at least 0.
    Malformed: 0, for an answer without a whole number. English words up to twenty count.

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
        """The last whole number of the answer; if there are no digits, the last number word."""
        quantities = parse_quantities(answer)
        if quantities:
            value = quantities[-1].value
            return int(value) if value.is_integer() and value >= 0 else None
        counts = [_COUNTS[word] for word in _WORD.findall(answer.lower()) if word in _COUNTS]
        return counts[-1] if counts else None

    def score(self, parsed: int, target: int) -> float:
        """1 or 0, or between."""
        if not self.partial:
            return float(parsed == target)
        return max(0.0, 1 - abs(parsed - target) / max(target, 1))


numeric_reward = NumericReward()
count_reward = CountReward()
