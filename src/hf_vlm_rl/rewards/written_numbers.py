r"""The one reader of numbers. What stands in this grammar is read; everything else is malformed.

A text is cut into expressions: digits with the signs, operators, points and spaces between them. An
expression is a number if the whole of it is one of these:

- a whole number of up to 15 digits that begins with no zero, or "0"; thousands are separated by a comma, an
  apostrophe, an underscore or a space, everywhere the same, or as in India: 1000, 1,000, 1'000, 12,34,567;
- a decimal with a point: 3.14, .5, 1,000.5;
- a fraction or a mixed number: 1/2, 2 1/2, ½, 2½, \frac{1}{2}, 2\frac{1}{2};
- a power of ten, alone or behind a decimal: 10^3, 10⁻³, 10^{-3}, 1e-3, 1.5 x 10^3, 1.5\times10^{3}.

Before it may stand a sign that touches it (hyphen, minus, dash, plus, "minus", "negative") and a sign of
currency. Behind it may stand a magnitude (hundred, thousand, million, billion, trillion, dozen), which
multiplies it, and a unit: a percent sign, degrees, a currency, a symbol such as km/h or m², also without a
space, or a word behind a space.

Other expressions are malformed: "5!", "5^2", "5-3", "<5", "12:30", "1.2.3", "007", "x5", "2nd", "3,14",
"sqrt(5)". So are two numbers with a word that makes them one ("3 or 4", "2 point 5", "5 ft 3 in"), and
numbers that a word makes into others ("root of 5", "more than 5", "5 squared").
"""

import math
import unicodedata
from dataclasses import dataclass

import regex

from . import number_words as known
from .completions import UNSPACED, compatible

# Longer expressions are malformed.
_MAX_CHARS = 64

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
# Signs of Arabic decimals, of operations, minus signs and dashes, apostrophes.
_CHARACTERS = str.maketrans(
    {"\u066b": ".", "\u066c": ",", "\u066a": "%", "\u2215": "/", "\u301c": "~"}
    | dict.fromkeys("\u00d7\u00b7\u22c5", "*")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2019\u02bc", "'")
)
_SWAPPED = str.maketrans(".,", ",.")
_UNGROUPED = str.maketrans("", "", ",'_ ")

_START = r"[-+]?\p{Sc}?[-+]?\.?\d"
# Marks of LaTeX, Markdown and HTML go; words for signs and operators become these. No number has a "√" in it.
_REWRITES = [
    (regex.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\p{Cf}", ""),  # marks of direction, which nobody sees
        (r"</?[A-Za-z|][^<>]{0,40}+>", " "),
        (r"(?<![\p{L}\p{N}])(\*\*|\*|__|_|`)(?!\s)([^*_`\n]++)(?<!\s)\1(?![\p{L}\p{N}])", r"\2"),
        (r"(?<=\d)\s*\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}(?!\s*\d)", r" \1/\2"),
        (r"\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}(?!\s*\d)", r"\1/\2"),
        (r"\\(?:text|textbf|mathrm|mathbf|boxed)\s*\{|\\[()\[\]]|\\(?:left|right)(?!\p{L})", " "),
        (r"\{,\}", ","),
        (r"\\!", ""),
        (r"\\[,;: ]", " "),
        (r"\\(?:times|cdot)(?!\p{L})\s*", "*"),
        (r"\^\{([^{}]*+)\}", r"^\1"),
        (r"\^\\circ(?!\p{L})|\\degree(?!\p{L})|\^[°º]", "°"),
        (r"\\([%$])", r"\1"),
        (r"\$([^$\n]*+)\$", r" \1 "),
        (r"(?<!\d)([-+]?)%(\d[\d.,]*+)", r"\1\2%"),
        (r"(?<=\d)[eE](?=[-+]?\d)", "*10^"),
        (r"(?<=\d)\s*[xX]\s*(?=\d)", "*"),
        (r"(?i)(?<=\d)\s*(?:percent|per\s+cent)(?!\p{L})", "%"),
        (rf"(?i)(?<!\p{{L}})(?:minus|negative)\s+(?={_START})", "-"),
        (rf"(?i)(?<!\p{{L}})(?:{known.CHANGING_BEFORE})\s+(?={_START})", "√"),
        (rf"(?i)(?<=\d)\s+(?:{known.CHANGING_BEHIND})(?!\p{{L}})", "√"),
        (rf"(?i)(?<=\d)\s*+(?<!\d)(?:{known.JOINING})\s++(?={_START})", "√"),
        (rf"(?<=\d)\s*[{known.JOINING_CHARACTERS}]++\s*(?={_START})", "√"),
    )
]
_ATOM = r"(?:[\d\p{No}\p{Nl}\p{Sc}÷+\-±<>≤≥≠√∞^/*\\]|[.,]++(?=[\d\p{No}])|(?<=\d)(?:[:'_~](?=\d)|!))"
_EXPRESSION = regex.compile(rf"{_ATOM}++(?: ++{_ATOM}++)*+")
_WHOLE = "|".join(
    [
        r"[1-9]\d?(?:,\d{2}(?=,))++,\d{3}",
        *(rf"[1-9]\d{{0,2}}(?:{mark}\d{{3}})++" for mark in ",'_ "),
        r"[1-9]\d*+",
        "0",
    ]
)
_NUMBER = regex.compile(
    r"(?P<before>[-+]?(?:\p{Sc} ?)?|\p{Sc} ?[-+])(?:"
    r"(?:(?P<whole>[1-9]\d*+) )?(?P<over>[1-9]\d*+|0) ?/ ?(?P<under>[1-9]\d*+)"
    rf"|(?P<decimal>(?:{_WHOLE})(?:\.\d++)?+|\.\d++)(?: ?\* ?10\^(?P<exponent>[-+]?\d{{1,3}}))?"
    r"|10\^(?P<power>[-+]?\d{1,3}))(?P<behind>(?: ?\p{Sc})?)"
)
_POWER = r"(?:\^-?\d|(?<=[a-zA-Z])[23](?![\d.,]))?+"  # of a unit
_BEHIND = regex.compile(
    rf"(?:\s?(?i:(?P<scale>{'|'.join(known.SCALES)}))(?!\p{{L}}))?"
    r"(?:\s?(?P<mark>%|°\s?[CFcf](?!\p{L})|°|\p{Sc})|(?P<space>\s*+)"
    rf"(?P<word>\p{{L}}[\p{{L}}\p{{M}}]*+{_POWER}(?:[/*]\p{{L}}++{_POWER})*+))?"
)
# A letter, or the opening bracket of a function or an operation, before a number.
_TOUCHING = regex.compile(
    rf"(?:[\p{{L}}\p{{M}}_#@}}](?<![{UNSPACED}])"
    rf"|(?:[\p{{L}}\p{{N}}](?<![{UNSPACED}])|[\^*/+\-÷√\\] *)(?:[(\[{{] *)+)$"
)
# Something to add to, before a number with a sign.
_SUMMAND = regex.compile(r"(?:[)\]}%°]|\d\.)$")
_BEGINS_UNSPACED = regex.compile(f"[{UNSPACED}]")


@dataclass(frozen=True)
class Quantity:
    """A number and what stands with it.

    `value` has its magnitude; of "12 %" it is 12. `unit` is the word behind it, in lower case, or a symbol;
    "" for none. If it `scales`, the unit changes the value, as "k" and "Mio" do, and may not be missing.
    """

    value: float
    unit: str = ""
    scales: bool = False


def read_numbers(text: str, decimal_comma: bool = False) -> list[Quantity | None]:
    """The numbers in a text, in order; None for each expression with digits that is malformed. Linear time.

    With `decimal_comma`, commas are decimal and points stand between thousands, as in German.
    """
    text = _without_marks(text.translate(_SWAPPED) if decimal_comma else text)
    numbers: list[Quantity | None] = []
    position = 0
    while match := _EXPRESSION.search(text, position):
        position = match.end()
        if any(char.isdecimal() for char in match[0]):
            behind = _BEHIND.match(text, position)
            position = behind.end()
            numbers.append(_number(text, match, behind))
    return numbers


def _without_marks(text: str) -> str:
    text = regex.sub(r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]++", lambda power: "^" + power[0].translate(_SUPERSCRIPTS), text)
    text = compatible(text).translate(_CHARACTERS)
    text = regex.sub(r"(?V1)[\p{Nd}--[0-9]]", lambda digit: str(unicodedata.decimal(digit[0])), text)
    text = regex.sub(r"(?<=(\d)?)[¼-¾⅐-⅞](?!\s*\d)", _fraction, text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def _fraction(character: regex.Match[str]) -> str:
    over, _, under = unicodedata.normalize("NFKC", character[0]).partition("\u2044")
    return f"{' ' if character[1] else ''}{over}/{under}"


def _number(text: str, expression: regex.Match[str], behind: regex.Match[str]) -> Quantity | None:
    """The number of an expression, or None if it, or what touches it, is outside the grammar."""
    start, end = expression.span()
    number = _NUMBER.fullmatch(expression[0]) if end - start <= _MAX_CHARS else None
    if number is None or _is_touched(text, start) or text[end : end + 1] in ("(", "[", "{"):
        return None
    unit, value = _unit(number, behind), _value(number)
    if unit is None or value is None:
        return None
    value *= known.SCALES.get((behind["scale"] or "").lower(), 1.0)
    return Quantity(-value if "-" in number["before"] else value, *unit)


def _is_touched(text: str, start: int) -> bool:
    """Whether what stands before an expression makes another number of it: "x5", "(a)-5", "1.-5", "f(5)"."""
    before = text[max(0, start - 8) : start]
    if _TOUCHING.search(before):
        return True
    if before and (before[-1] in known.FORBIDDEN_BEFORE or before[-1].isnumeric()):
        return True
    return text[start] in "+-" and _SUMMAND.search(before) is not None


def _value(number: regex.Match[str]) -> float | None:
    if number["over"]:
        whole, over, under = int(number["whole"] or 0), int(number["over"]), int(number["under"])
        return whole + over / under if not whole or 0 < over < under else None
    digits = (number["decimal"] or "1").translate(_UNGROUPED)
    value = float(f"{digits}e{number['exponent'] or number['power'] or 0}")
    return value if math.isfinite(value) and len(digits.partition(".")[0]) <= 15 else None


def _unit(number: regex.Match[str], behind: regex.Match[str]) -> tuple[str, bool] | None:
    """The unit, and whether it scales; None for what is no unit."""
    currency = (number["before"] + number["behind"]).strip("-+ ")
    mark, word = (behind["mark"] or "").replace(" ", "").upper(), behind["word"] or ""
    if len(currency) > 1 or (currency and mark):
        return None
    if word in known.MAGNITUDES or word.lower() in known.MAGNITUDES:
        return word, True
    if currency or mark or not word:
        return currency or mark, False
    if word[0].isnumeric() or word.startswith(known.FORBIDDEN_BEHIND):
        return None
    parts = [part.strip("^-0123456789").lower() for part in word.replace("*", "/").split("/")]
    if not behind["space"] and not (known.SYMBOLS.issuperset(parts) or _BEGINS_UNSPACED.match(word)):
        return None
    unit = word.replace("^", "")
    unit = unit[0] + unit[1:].lower() if parts[0] in known.MILLI_AND_MEGA else unit.lower()
    return known.ALIASES.get(unit, unit), False
