"""Mathematical answers, compared by value."""

from dataclasses import dataclass

import regex

from .base import AnswerReward
from .columns import as_text
from .completions import NEGATION, asserted, extract_answer
from .math_process import ask

# A final answer is short; parsers and simplification are not linear.
_MAX_CHARS = 256
_BOX = "\\boxed{"
# "5 is not it": not equal, in LaTeX and Unicode.
_UNEQUAL = regex.compile(r"\\(?:neq?|not)(?![a-zA-Z])|≠")
_CLAUSE_END = regex.compile(r"[.,;:!?\n\u3002\uff0c\uff1b\uff1a\uff01\uff1f]")
_SPACES = regex.compile(r"(?<!\w)\s+|\s+(?!\w)")
_MARKS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


@dataclass(frozen=True, kw_only=True)
class MathReward(AnswerReward):
    r"""1 if the answer equals the right one as mathematics, by math-verify.

    Needs math-verify. The answer is LaTeX or plain, `\boxed{...}` or not; of several boxes the last counts.
    One that is written like the right one is right, whatever it says. Others are not read up to a denial
    ("not 5", see `asserted`), and are compared in a process of their own: one that takes longer than 5
    seconds, as `\Gamma(10^9)`, is wrong, in every thread.

    Columns: `answer`: LaTeX, or a number.
    Range: 0 or 1.
    Malformed: 0, for an answer without anything mathematical, or of more than 256 characters.

    Raises:
        ImportError: If math-verify is not installed.
    """

    target = staticmethod(as_text)

    def parse_answer(self, answer: str) -> str | None:
        """The answer out of its box, if it is mathematics."""
        answer = "" if _is_denied(answer) else asserted(_unboxed(answer)).strip()
        return answer if 0 < len(answer) <= _MAX_CHARS and ask("reads", answer) else None

    def parse_for(self, text: str, target: str) -> str | None:
        """The answer, also where it is no mathematics if it is written like the right one."""
        whole, right = extract_answer(text, self.tag), _unboxed(target)
        answer = _unboxed(whole)
        if _is_denied(whole) or (_UNEQUAL.search(answer) and not _UNEQUAL.search(right)):
            return None
        plain = _plain(answer)
        return answer if plain and plain == _plain(right) else self.parse(text)

    def score(self, parsed: str, target: str) -> float:
        """1 or 0."""
        right = _unboxed(target)
        return float(_plain(parsed) == _plain(right) or ask("equal", right, parsed))


def _unboxed(text: str) -> str:
    r"""The content of the last `\boxed{...}`, or the text as it is."""
    _, box, rest = text.rpartition(_BOX)
    depth = 1
    for position, char in enumerate(rest if box else ""):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return rest[:position].strip()
    return text.strip()


def _is_denied(text: str) -> bool:
    r"""Whether the clause around the last `\boxed{...}` denies something, as "\boxed{5} is wrong" does."""
    before, box, rest = text.rpartition(_BOX)
    clause = _CLAUSE_END.split(before)[-1], _CLAUSE_END.split(rest.rpartition("}")[2])[0]
    return bool(box) and any(map(NEGATION.search, clause))


def _plain(text: str) -> str:
    """A text without full stop, marks of a formula, and white space but between two words or numbers."""
    text = " ".join(_SPACES.sub("", text).split()).rstrip(".")
    for opening, closing in _MARKS:
        if len(text) >= len(opening + closing) and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)]
    return text


math_reward = MathReward()
