"""Mathematical answers, compared by value."""

import re
import threading
from dataclasses import dataclass
from typing import Any

from .base import RowReward, need
from .columns import as_text
from .completions import extract_answer

# A final answer is short; parsers and simplification are not linear.
_MAX_CHARS = 256
_MAX_DEPTH = 8
_SECONDS = 5
_HEAVY = (
    re.compile(r"\\(?:int|iint|iiint|oint|sum|prod|lim|binom)(?![a-zA-Z])"),
    re.compile(r"\d{4}\s*+!|[)}!]\s*+!"),
    re.compile(r"\^\s*+[-+]?\s*+(?:\d++|[a-zA-Z])\s*+\^"),
    re.compile(r"\^\s*+[{(]?\s*+[-+]?\s*+\d{5}|[)}]\s*+\^\s*+[{(]?\s*+[-+]?\s*+\d{2}"),
)
# A word of a sentence, rather than a product of letters.
_PROSE = re.compile(r"(?<![\\a-zA-Z])(?!(?:sin|cos|tan|log|ln|exp|sqrt|pi)(?![a-zA-Z]))[a-zA-Z]{2,}")
_LATEX = ("$", "\\boxed", "\\(", "\\[")


@dataclass(frozen=True, kw_only=True)
class MathReward(RowReward):
    r"""1 if the answer equals the right one as mathematics, by math-verify.

    Needs math-verify. The answer is LaTeX or plain, `\boxed{...}` or not. What could take forever is compared
    as text only: integrals, sums, products and limits, powers in exponents, exponents of five digits (two
    on a bracket), factorials of four, brackets more than 8 deep. A comparison gets 5 seconds in the main
    thread; other threads have no signals, and there these limits are all there is.

    Columns: `answer`: LaTeX, or a number.
    Range: 0 or 1.
    Malformed: 0, for an answer without anything mathematical, or of more than 256 characters.

    Args:
        column: The column with the right answer.
        tag: Where the answer stands, see `extract_answer`; None for the whole completion.

    Raises:
        ImportError: If math-verify is not installed.
    """

    column: str = "answer"
    tag: str | None = "answer"

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """The right answer per row, and what math-verify reads in it."""
        texts = self.read(columns, self.column, rows, as_text)
        return [None if text is None else (_plain(text), _candidates(text)) for text in texts]

    def parse(self, text: str) -> tuple[str, list] | None:
        """The answer without marks, and what math-verify reads in it."""
        answer = extract_answer(text, self.tag)
        answer = answer[max(answer.rfind("\\boxed{"), 0) :]
        if not answer or len(answer) > _MAX_CHARS:
            return None
        candidates = _candidates(answer)
        return (_plain(answer), candidates) if candidates or _is_heavy(answer) else None

    def score(self, parsed: tuple[str, list], target: tuple[str, list]) -> float:
        """1 or 0."""
        if parsed[0] == target[0]:
            return 1.0
        verify = need("math_verify", "math-verify").verify
        try:
            return float(verify(target[1], parsed[1], timeout_seconds=_timeout()))
        except Exception:  # sympy's own, of any kind
            return 0.0


def _plain(text: str) -> str:
    text = "".join(text.split())
    for opening, closing in (("\\boxed{", "}"), ("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)]
    return text


def _candidates(text: str) -> list:
    parse = need("math_verify", "math-verify").parse
    if _is_heavy(text):
        return []
    formula = not any(mark in text for mark in _LATEX) and not _PROSE.search(text)
    try:
        # Plain numbers are read best as they are; `no_fallback`: no text, only mathematics.
        options = {"fallback_mode": "no_fallback", "parsing_timeout": _timeout()}
        return (parse(f"${text}$", **options) if formula else []) or parse(text, **options)
    except Exception:  # sympy's own, of any kind
        return []


def _timeout() -> int | None:
    # math-verify's timeouts are signals, which only the main thread gets.
    return _SECONDS if threading.current_thread() is threading.main_thread() else None


def _is_heavy(text: str) -> bool:
    text = text.replace("**", "^")
    return any(pattern.search(text) for pattern in _HEAVY) or _nests(text)


def _nests(text: str) -> bool:
    """Whether there is a power in an exponent, or brackets are too deep."""
    exponents: list[bool] = []  # of each open bracket: whether it is, or is in, an exponent
    closed = False  # just closed an exponent
    previous = ""
    for char in text:
        if char == "^" and (closed or any(exponents)):
            return True
        if char in "{([":
            exponents.append(previous == "^" or any(exponents))
            if len(exponents) > _MAX_DEPTH:
                return True
        if not char.isspace():
            closed = char in "})]" and bool(exponents) and exponents.pop()
            previous = char
    return False


math_reward = MathReward()
