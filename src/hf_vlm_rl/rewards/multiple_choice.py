"""Multiple choice: the letter of an option."""

import re
from dataclasses import dataclass
from typing import Any

from .base import RowReward
from .columns import as_texts
from .completions import extract_answer, words

# A letter that is marked as an option: (B), B), B., B:, **B**, \boxed{B}, $B$, "option B", "answer is B".
# Each alternative is of bounded length: linear time.
_MARKED = re.compile(
    r"\(([A-Z])\)|\*\*([A-Z])\*\*|\\boxed\{([A-Z])\}|\$([A-Z])\$"
    r"|(?<![\w.])([A-Z])(?:\)|[.:](?=\s|$))"
    r"|(?i:\b(?:option|choice|answer)(?:\sis)?:?)\s([A-Z])(?![\w'\u2019])"
)
# "A" and "I" before a word are words themselves.
_ALONE = re.compile(r"(?<!\w)([B-HJ-Z]|[AI](?!\s(?!or\b|and\b)[a-z]))(?![\w'\u2019])")


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceReward(RowReward):
    r"""1 if the answer picks the right letter, and no other.

    A letter counts where it is the whole answer or marked, as in `(B)`, `B.`, `**B**`, `\boxed{B}`,
    "answer is B"; else where it stands alone. With `options`, the text of an option stands for its letter.

    Columns: `answer`: a letter from A to Z; if named, `options`: the row's list of options.
    Range: 0 or 1.
    Malformed: 0, for an answer with no letter or several.

    Args:
        column: The column with the right letter.
        options: The column with the texts of the options, if answers may be given as text.
        tag: Where the answer stands, see `extract_answer`; None for the whole completion.
    """

    column: str = "answer"
    options: str | None = None
    tag: str | None = "answer"

    def targets(self, columns: dict[str, Any], rows: int) -> list:
        """The right letter and the options (or None) per row."""
        letters = self.read(columns, self.column, rows, _as_letter)
        if self.options is None:
            return [None if letter is None else (letter, None) for letter in letters]
        options = self.read(columns, self.options, rows, as_texts)
        return [
            None if None in (letter, texts) else (letter, texts)
            for letter, texts in zip(letters, options, strict=True)
        ]

    def parse(self, text: str) -> tuple[str | None, tuple[str, ...]] | None:
        """The one letter that the answer picks, or None, and the answer's words."""
        answer = extract_answer(text, self.tag)
        letter, said = _letter(answer), tuple(words(answer))
        if letter is None and (self.options is None or not said):
            return None
        return letter, said

    def score(self, parsed: tuple, target: tuple) -> float:
        """1 or 0."""
        letter, said = parsed
        right, options = target
        if letter is None:
            fits = [index for index, option in enumerate(options) if tuple(words(option)) == said]
            letter = chr(ord("A") + fits[0]) if len(fits) == 1 else None
        return float(letter == right)


def _letter(answer: str) -> str | None:
    bare = answer.strip(" \t\n().:*$")
    if len(bare) == 1 and bare.isascii() and bare.isalpha():
        return bare.upper()
    found = {letter for match in _MARKED.findall(answer) for letter in match if letter}
    if not found:
        found = set(_ALONE.findall(answer))
    return found.pop() if len(found) == 1 else None


def _as_letter(value: Any) -> str:
    if not isinstance(value, str) or len(value.strip(" ().")) != 1 or not value.strip(" ().").isalpha():
        raise ValueError("the letter of the right option, such as 'B'")
    return value.strip(" ().").upper()


multiple_choice_reward = MultipleChoiceReward()
